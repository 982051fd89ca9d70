/* How a PCI bus id becomes NVML's structure. */
#ifndef SLICEWISE_PCI_H
#define SLICEWISE_PCI_H

#include "nvml.h"

void pci_fill(const char *bus, nvmlPciInfo_t *pci);

#endif
