/* Entries that end in a jump, never in a call: the real function sees the program as its caller,
   and a launch's stack arguments stay where the program put them. */
    .set hook_number, 0
#define HOOK(name) .set ID_##name, hook_number; .set hook_number, hook_number + 1
#include "hooks.def"

    .text
#ifndef SLICEWISE_HOSTED
/* dlsym(handle, name) and dlvsym(handle, name, version): names that begin cu or nv are
   looked up. */
.macro LOOKUP name, lookup, real
    .globl \name
    .type \name, @function
\name:
    testq %rsi, %rsi
    jz 9f
    cmpb $'c', (%rsi)
    jne 1f
    cmpb $'u', 1(%rsi)
    je 2f
    jmp 9f
1:  cmpb $'n', (%rsi)
    jne 9f
    cmpb $'v', 1(%rsi)
    jne 9f
2:  pushq %rdi
    pushq %rsi
    pushq %rdx
    call \lookup
    popq %rdx
    popq %rsi
    popq %rdi
    /* 1 stands for a name that is not ours. */
    cmpq $1, %rax
    je 9f
    ret
9:  jmp *\real(%rip)
    .size \name, . - \name
.endm

LOOKUP dlsym, lookup_symbol, real_dlsym
LOOKUP dlvsym, lookup_versioned, real_dlvsym

.macro RESOLVE name, real
    .type \name, @function
\name:
    pushq %rdi
    pushq %rsi
    pushq %rdx
    call elf_resolve
    popq %rdx
    popq %rsi
    popq %rdi
    jmp *\real(%rip)
    .size \name, . - \name
.endm

RESOLVE resolve_dlsym, real_dlsym
RESOLVE resolve_dlvsym, real_dlvsym
#endif

/* A launch: where nothing is limited, three instructions and the jump. Otherwise the gate gets the
   first four arguments, a place where all are saved, and the hook's number; it answers -1 for
   going on, or the result of a launch that it made itself. */
.macro LAUNCH name, gate, word=0
    .globl \name
    .type \name, @function
\name:
    movq own(%rip), %rax
    cmpl $0, \word(%rax)
    je 1f
    jmp *real + 8 * ID_\name(%rip)
1:  pushq %r9
    pushq %r8
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    movq %rsp, %r8
    subq $8, %rsp
    movl $ID_\name, %r9d
    call \gate
    addq $8, %rsp
    testq %rax, %rax
    jns 2f
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %r8
    popq %r9
    jmp *real + 8 * ID_\name(%rip)
2:  addq $48, %rsp
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

    .section .note.GNU-stack, "", @progbits
