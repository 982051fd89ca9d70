/* Entries that end in a jump, never in a call: the real function sees the program as its caller,
   and a launch's stack arguments stay where the program put them. */
    .set hook_number, 0
#define HOOK(name) .set ID_##name, hook_number; .set hook_number, hook_number + 1
#include "hooks.def"

    .text
.macro JUMP real
    adrp x16, \real
    add x16, x16, :lo12:\real
    ldr x16, [x16]
    br x16
.endm

#ifndef SLICEWISE_HOSTED
/* dlsym(handle, name) and dlvsym(handle, name, version): names that begin cu or nv are
   looked up. */
.macro LOOKUP name, lookup, real
    .globl \name
    .type \name, %function
\name:
    cbz x1, 9f
    ldrb w16, [x1]
    cmp w16, 'c'
    b.ne 1f
    ldrb w16, [x1, 1]
    cmp w16, 'u'
    b.eq 2f
    b 9f
1:  cmp w16, 'n'
    b.ne 9f
    ldrb w16, [x1, 1]
    cmp w16, 'v'
    b.ne 9f
2:  stp x29, x30, [sp, -48]!
    mov x29, sp
    stp x0, x1, [sp, 16]
    str x2, [sp, 32]
    bl \lookup
    mov x16, x0
    ldp x0, x1, [sp, 16]
    ldr x2, [sp, 32]
    ldp x29, x30, [sp], 48
    /* 1 stands for a name that is not ours. */
    cmp x16, 1
    b.eq 9f
    mov x0, x16
    ret
9:  JUMP \real
    .size \name, . - \name
.endm

LOOKUP dlsym, lookup_symbol, real_dlsym
LOOKUP dlvsym, lookup_versioned, real_dlvsym

.macro RESOLVE name, real
    .type \name, %function
\name:
    stp x29, x30, [sp, -48]!
    mov x29, sp
    stp x0, x1, [sp, 16]
    str x2, [sp, 32]
    bl elf_resolve
    ldp x0, x1, [sp, 16]
    ldr x2, [sp, 32]
    ldp x29, x30, [sp], 48
    JUMP \real
    .size \name, . - \name
.endm

RESOLVE resolve_dlsym, real_dlsym
RESOLVE resolve_dlvsym, real_dlvsym
#endif

/* A launch: where nothing is limited, a test and the jump. Otherwise the gate gets the first four
   arguments, a place where all are saved, and the hook's number; it answers -1 for going on, or
   the result of a launch that it made itself. */
.macro LAUNCH name, gate, word=0
    .globl \name
    .type \name, %function
\name:
    adrp x16, own
    ldr x16, [x16, :lo12:own]
    ldr w16, [x16, \word]
    cbz w16, 1f
    JUMP real + 8 * ID_\name
1:  stp x29, x30, [sp, -80]!
    mov x29, sp
    stp x0, x1, [sp, 16]
    stp x2, x3, [sp, 32]
    stp x4, x5, [sp, 48]
    stp x6, x7, [sp, 64]
    add x4, sp, 16
    mov w5, ID_\name
    bl \gate
    mov x16, x0
    tbz x16, 63, 2f
    ldp x0, x1, [sp, 16]
    ldp x2, x3, [sp, 32]
    ldp x4, x5, [sp, 48]
    ldp x6, x7, [sp, 64]
    ldp x29, x30, [sp], 80
    JUMP real + 8 * ID_\name
2:  ldp x29, x30, [sp], 80
    mov x0, x16
    ret
    .size \name, . - \name
.endm

LAUNCH cuLaunchKernel, gate_kernel
LAUNCH cuLaunchKernel_ptsz, gate_kernel
LAUNCH cuLaunchCooperativeKernel, gate_kernel
LAUNCH cuLaunchCooperativeKernel_ptsz, gate_kernel
LAUNCH cuLaunchKernelEx, gate_config
LAUNCH cuLaunchKernelEx_ptsz, gate_config
/* Graphs reserve memory at their launch, so they pass only where nothing at all is limited. */
LAUNCH cuGraphLaunch, gate_graph, 4
LAUNCH cuGraphLaunch_ptsz, gate_graph, 4
LAUNCH cuLaunch, gate_old
LAUNCH cuLaunchGrid, gate_old
LAUNCH cuLaunchGridAsync, gate_old

/* The hooks in the order of their numbers, for the lookup. */
    .section .data.rel.ro, "aw"
    .balign 8
    .hidden hook_table
    .globl hook_table
hook_table:
#undef HOOK
#define HOOK(name) .quad name
#include "hooks.def"

    .data
    .balign 8
    .hidden real_dlsym, real_dlvsym, real_dlopen
    .globl real_dlsym, real_dlvsym, real_dlopen
#ifdef SLICEWISE_HOSTED
real_dlsym:
    .quad 0
real_dlvsym:
    .quad 0
#else
real_dlsym:
    .quad resolve_dlsym
real_dlvsym:
    .quad resolve_dlvsym
#endif
real_dlopen:
    .quad 0

    .section .note.GNU-stack, "", %progbits
