# How long tests take, in seconds on two cores: the longest begin first, so that two at a time end together. A row a name, the
# longest first within its tier.
set(seconds
  # quick
  07_block_sparse              100
  05_flash_v2                   90
  06_backward                   75
  04_flash_v1                   51
  01_naive_mha                  40
  02_tiled_gemm                 35
  03_online_softmax             35
  check                         32
  docs                          24
  exercises_01_naive_mha        23
  cli                           22
  disassembly                   20
  mutate                        20
  training                      20
  simt                          18
  exercises_04_flash_v1         17
  io_theorem                    17
  first_flash_05_flash_v2       15
  trace                         14
  single                        14
  cli_unchanged                 14
  exercises_02_tiled_gemm       14
  exercises_06_backward         14
  exercises_03_online_softmax   13
  parity_04_flash_v1            12
  exercises_05_flash_v2         11
  exercises_07_block_sparse     10
  score_options                 10
  check_backward                 8
  # long
  mutate_02_tiled_gemm_long    245
  toy_step_long                230
  exercises_07_block_sparse_long 200
  04_flash_v1_long             160
  06_backward_long             160
  exercises_06_backward_long   130
  05_flash_v2_long             127
  mutate_04_flash_v1_long      120
  browser_long                 110
  check_long                    94
  single_07_block_sparse_long   80
  single_06_backward_long       80
  single_05_flash_v2_long       80
  single_02_tiled_gemm_long     60
  02_tiled_gemm_long            54
  single_03_online_softmax_long 50
  disassembly_07_block_sparse_long 50
  disassembly_06_backward_long  40
  disassembly_05_flash_v2_long  40
  single_04_flash_v1_long       30
  check_backward_long           30)

# Each name once: of two rows the last would win in silence. Of names that are no test of this build there is nothing to set.
function(set_costs)
  set(rows ${ARGN})
  while(rows)
    list(POP_FRONT rows name cost)
    if(name IN_LIST seen)
      message(FATAL_ERROR "tests/costs.cmake: '${name}' stands there twice")
    endif()
    list(APPEND seen ${name})
    if(NOT cost MATCHES "^[1-9][0-9]*$")
      message(FATAL_ERROR "tests/costs.cmake: the seconds of '${name}' are '${cost}'")
    endif()
    if(TEST ${name})
      set_tests_properties(${name} PROPERTIES COST ${cost})
    endif()
  endwhile()
endfunction()

set_costs(${seconds})
