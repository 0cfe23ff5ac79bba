// Dependent launches: a kernel begins while the one before it still runs, and waits for it.
//
// runtime::LaunchConfig::dependent lets a launch begin before the launch before it has ended: when all of that one's blocks have
// come to griddepcontrol_launch_dependents(), or have ended. This is a hint, and no memory comes with it.
//
// griddepcontrol_wait() waits until the launch before has ended, and sees all that it stored. Before the wait a thread may touch
// only memory that no launch before it writes, and store only where none reads. A thread that has not waited itself comes
// behind another one's wait by a barrier. A kernel in which no thread waits leaves its successor no way to wait for the
// launches before it.
//
// In a launch that is not dependent both do nothing. From sm_90 on: kernels that use these stand in NAME.sm_90.cu. PTX ISA,
// "griddepcontrol".
#pragma once

#include "common/device/dialect.h"
#if defined(FLASHSTEPS_SIM)
#include "common/simt/ptx.h"
#endif

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::ptx::griddepcontrol_launch_dependents;
using simt::ptx::griddepcontrol_wait;

#else

__device__ inline void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void griddepcontrol_launch_dependents() { asm volatile("griddepcontrol.launch_dependents;"); }

#endif

}  // namespace ptx
