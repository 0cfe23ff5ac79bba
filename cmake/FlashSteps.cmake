# Compiler settings, dependencies, and add_step().
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")  # step executables; tests set their own
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(FLASHSTEPS_WERROR "Treat warnings as errors" ON)

find_package(Threads REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Catch2 REQUIRED)

# Flags of every target of ours.
add_library(flashsteps_flags INTERFACE)
target_include_directories(flashsteps_flags INTERFACE "${PROJECT_SOURCE_DIR}")
set(host_warnings -Wall -Wextra -Wshadow)
if(FLASHSTEPS_WERROR)
  list(APPEND host_warnings -Werror)
endif()
target_compile_options(flashsteps_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${host_warnings}>")
# Where a symbolic link leads to this checkout, reports and tools name the sources by their real place all the same.
get_filename_component(real_source_dir "${PROJECT_SOURCE_DIR}" REALPATH)
if(NOT real_source_dir STREQUAL PROJECT_SOURCE_DIR)
  set(real_names "-ffile-prefix-map=${PROJECT_SOURCE_DIR}=${real_source_dir}")
  target_compile_options(flashsteps_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${real_names}>")
endif()
if(FLASHSTEPS_BACKEND STREQUAL "sim")
  target_compile_definitions(flashsteps_flags INTERFACE FLASHSTEPS_SIM)
endif()

if(FLASHSTEPS_BACKEND STREQUAL "gpu")
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know how nvcc spells it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  set(cuda_flags --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra)
  if(FLASHSTEPS_WERROR)
    list(APPEND cuda_flags -Werror=all-warnings -Xcompiler=-Werror)
  endif()
  if(CMAKE_BUILD_TYPE STREQUAL "Debug")
    list(APPEND cuda_flags -G)
  else()
    list(APPEND cuda_flags -lineinfo)
  endif()
  target_compile_options(flashsteps_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
  find_package(CUDAToolkit REQUIRED)
else()
  # The simulator needs CUDA's headers (half, bfloat16, vector types) and nothing else of CUDA: from a toolkit, or from
  # PyPI's toolkit wheels, which tools/bootstrap puts into .venv.
  find_path(FLASHSTEPS_CUDA_INCLUDE cuda_fp16.h
    HINTS "${PROJECT_SOURCE_DIR}/.venv/cuda-headers/include" "$ENV{CUDA_HOME}/include" "$ENV{CUDA_PATH}/include"
          /usr/local/cuda/include
    DOC "Directory of CUDA's headers")
  if(NOT FLASHSTEPS_CUDA_INCLUDE)
    message(FATAL_ERROR "CUDA's headers were not found. Run tools/bootstrap, or pass -DFLASHSTEPS_CUDA_INCLUDE=DIR.")
  endif()
  # On the target that kernels see. SYSTEM: warnings in CUDA's headers are not ours.
  target_include_directories(flashsteps_flags SYSTEM INTERFACE "${FLASHSTEPS_CUDA_INCLUDE}")
  find_package(Boost 1.74 REQUIRED COMPONENTS context)
  find_library(LIBDW dw REQUIRED)
  # Kernel files: the compiler reports every memory access to the simulator (docs/simulator.md says why these flags).
  # DWARF 4: binutils 2.40 gives some lines of DWARF 5 to the wrong file (tools/disassembly.py reads them).
  set(kernel_flags -g -gdwarf-4 -fsanitize=thread,integer-divide-by-zero --param=tsan-instrument-func-entry-exit=0 --param=tsan-distinguish-volatile=1
      -fno-strict-aliasing -fno-thread-jumps -fno-jump-tables -fno-tree-sra -fno-reorder-blocks -fno-omit-frame-pointer
      -Wno-unknown-pragmas -Wno-attributes)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    list(APPEND kernel_flags -O1)
  endif()
endif()

# Marks the sources of a target that hold kernels: CUDA in the gpu build, instrumented C++ in the sim build.
function(kernel_sources target)
  foreach(source IN LISTS ARGN)
    if(FLASHSTEPS_BACKEND STREQUAL "gpu")
      set_source_files_properties("${source}" PROPERTIES LANGUAGE CUDA)
    else()
      set_source_files_properties("${source}" PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;${kernel_flags}")
    endif()
  endforeach()
  target_sources(${target} PRIVATE ${ARGN})
endfunction()

# add_step(05_flash_v2): steps/05_flash_v2/step.cu becomes bin/05_flash_v2. A step of matrix products or of row
# softmaxes says so: add_step(02_tiled_gemm GEMM), add_step(03_online_softmax SOFTMAX).
function(add_step name)
  cmake_parse_arguments(PARSE_ARGV 1 step "GEMM;SOFTMAX" "" "")
  add_library(step_${name} OBJECT)
  kernel_sources(step_${name} ${PROJECT_SOURCE_DIR}/steps/${name}/step.cu)
  target_link_libraries(step_${name} PUBLIC run)
  set(main main)
  set(suite attention_suite)
  if(step_GEMM)
    set(main main_gemm)
    set(suite gemm_suite)
  elseif(step_SOFTMAX)
    set(main main_softmax)
    set(suite softmax_suite)
  endif()
  set_target_properties(step_${name} PROPERTIES
    FLASHSTEPS_MAIN ${PROJECT_SOURCE_DIR}/common/run/${main}.cpp FLASHSTEPS_SUITE ${suite})
  add_executable(${name} ${PROJECT_SOURCE_DIR}/common/run/${main}.cpp)
  target_link_libraries(${name} PRIVATE step_${name} run)
endfunction()

# add_step_tests(01_naive_mha [extra …]): tests/test_01_naive_mha.cpp (and the extra files) linked with the step and with what every
# step of its family must pass.
function(add_step_tests name)
  get_target_property(suite step_${name} FLASHSTEPS_SUITE)
  add_executable(test_${name} test_${name}.cpp ${ARGN})
  target_link_libraries(test_${name} PRIVATE step_${name} ${suite} catch_main)
  register_catch_test(${name})
endfunction()

# add_exercise(01_naive_mha 2_find_the_fault): builds exercises/01_naive_mha_2_find_the_fault from the reader's task.cuh, and …_solution
# from ours. CI holds the grader to both: it must reject the task as we ship it, and accept the solution. Further names are further
# kernels for the same host side, which tests/test_exercises.py writes to exercises/….cuh before it builds them.
function(add_exercise step name)
  foreach(kernel task solution ${ARGN})
    set(target exercise_${step}_${name}_${kernel})
    set(folder ${PROJECT_SOURCE_DIR}/steps/${step}/exercises/${name})
    set(file ${folder}/${kernel}.cuh)
    if(kernel IN_LIST ARGN)
      set(file ${PROJECT_BINARY_DIR}/exercises/${target}.cuh)
    endif()
    # One source file cannot have two sets of flags, so each target compiles a one-line file of its own.
    file(CONFIGURE OUTPUT ${target}.cu CONTENT
      "#define EXERCISE_KERNEL \"${file}\"\n#include \"${folder}/exercise.cu\"\n")
    exercise_executable(${target} ${step} ${CMAKE_CURRENT_BINARY_DIR}/${target}.cu)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endforeach()
endfunction()

# add_counted_exercise(02_tiled_gemm 1_predict_conflicts): an exercise that asks for numbers has no task.cuh. Its exercise.cu becomes
# exercises/exercise_02_tiled_gemm_1_predict_conflicts, with which the grader counts them.
function(add_counted_exercise step name)
  exercise_executable(exercise_${step}_${name} ${step} ${PROJECT_SOURCE_DIR}/steps/${step}/exercises/${name}/exercise.cu)
endfunction()

function(exercise_executable target step source)
  get_target_property(main step_${step} FLASHSTEPS_MAIN)
  add_executable(${target} ${main})
  kernel_sources(${target} ${source})
  target_link_libraries(${target} PRIVATE run)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/exercises")
endfunction()

# add_catch_test(name libraries…): tests/test_NAME.cpp, one ctest entry; its test cases tagged [.long] are another one, NAME_long.
function(add_catch_test name)
  add_executable(test_${name} test_${name}.cpp)
  target_link_libraries(test_${name} PRIVATE ${ARGN} catch_main)
  register_catch_test(${name})
endfunction()

function(register_catch_test name)
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND test_${name} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES TIMEOUT 900)
  get_target_property(sources test_${name} SOURCES)
  foreach(source IN LISTS sources)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})  # a tag may come or go
    file(STRINGS ${source} long_cases REGEX "\\[\\.long\\]")
    if(long_cases AND NOT TEST ${name}_long)
      add_test(NAME ${name}_long COMMAND test_${name} "[long]" WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
      set_tests_properties(${name}_long PROPERTIES TIMEOUT 900 LABELS long)
    endif()
  endforeach()
endfunction()
