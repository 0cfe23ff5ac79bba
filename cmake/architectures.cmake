# architectures_of(variable FILE): for which architectures nvcc compiles a kernel file, by its name.
#   NAME.cu         those of every kernel: CMAKE_CUDA_ARCHITECTURES, machine code and PTX, which later devices compile for themselves
#   NAME.sm_90.cu   instructions that came with 9.0: machine code for it, and PTX for what comes later. Variants: .compute_capability = 90
#   NAME.sm_90a.cu  instructions that 9.0 has and no other device: machine code alone, since PTX for "a" serves no later device. Variants:
#                   .compute_capability = run::only(90)
function(architectures_of variable file)
  set(architectures ${CMAKE_CUDA_ARCHITECTURES})
  if(file MATCHES "\\.sm_([0-9]+a)\\.cu$")
    set(architectures ${CMAKE_MATCH_1}-real)
  elseif(file MATCHES "\\.sm_([0-9]+)\\.cu$")
    set(architectures ${CMAKE_MATCH_1})
  endif()
  set(${variable} ${architectures} PARENT_SCOPE)
endfunction()
