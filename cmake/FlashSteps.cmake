# Compiler settings, dependencies, and add_step().
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")  # step executables; tests set their own
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Of the host's code a report or a profile wants lines; who wants variables takes a debug preset. That is a third of what g++ takes.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")

# With ccache, where it is installed, a source that was compiled before is not compiled again. Not for nvcc: ccache compares what the
# preprocessor makes for one architecture, and takes an object for unchanged where only another one's code changed.
find_program(ccache ccache NO_CACHE)
if(ccache AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ccache}")
endif()

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
  # --threads: both architectures of a file at once, so that the last file, step 07's, does not keep the second core waiting.
  set(cuda_flags --expt-relaxed-constexpr --threads=2 -Xcompiler=-Wall,-Wextra)
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
  # DWARF 4: binutils 2.40 gives some lines of DWARF 5 to the wrong file (tools/machine_code/disassembly.py reads them).
  set(kernel_flags -g2 -gdwarf-4 -fsanitize=thread,integer-divide-by-zero --param=tsan-instrument-func-entry-exit=0 --param=tsan-distinguish-volatile=1
      -fno-strict-aliasing -fno-thread-jumps -fno-jump-tables -fno-tree-sra -fno-reorder-blocks -fno-omit-frame-pointer
      -Wno-unknown-pragmas -Wno-attributes)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    list(APPEND kernel_flags -O1 -fno-var-tracking)  # the simulator asks for lines, calls and types, and never where a variable is
  endif()
endif()

# quick_to_compile(TARGET…): of host code that runs for a moment.
function(quick_to_compile)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:RelWithDebInfo>>:-O1>)
  endforeach()
endfunction()

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

# add_kernels(conformance_sm_90 runtime FILE.sm_90.cu): an object library of a kernel file, for the architectures that its name says.
include(cmake/architectures.cmake)
function(add_kernels target library source)
  add_library(${target} OBJECT)
  kernel_sources(${target} ${source})
  target_link_libraries(${target} PUBLIC ${library})
  if(FLASHSTEPS_BACKEND STREQUAL "gpu")
    architectures_of(architectures ${source})
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${architectures}")
  endif()
endfunction()

# add_plain_cuda(00_first_kernel FILE.cu…): an executable of plain CUDA, which includes nothing of ours; several files are as one. For the
# simulator, cmake/plain_cuda.py makes C++ of what is none; lines keep their numbers.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
function(add_plain_cuda target)
  if(FLASHSTEPS_BACKEND STREQUAL "sim")
    set(script ${PROJECT_SOURCE_DIR}/cmake/plain_cuda.py)
    set(made ${CMAKE_CURRENT_BINARY_DIR}/${target}.cu)
    add_custom_command(OUTPUT ${made} COMMAND ${Python3_EXECUTABLE} ${script} ${made} ${ARGN}
      DEPENDS ${ARGN} ${script} ${PROJECT_SOURCE_DIR}/common/runtime/plain_cuda.h VERBATIM)
    add_executable(${target})
    kernel_sources(${target} ${made})
    # It does not include the simulator's headers, so it may use their names; and a warning must not keep a reader from trying something.
    set_property(SOURCE ${made} APPEND PROPERTY COMPILE_OPTIONS -Wno-shadow -Wno-error)
    target_link_libraries(${target} PRIVATE plain_cuda)
  else()
    list(JOIN ARGN "\"\n#include \"" all)
    set(made ${CMAKE_CURRENT_BINARY_DIR}/${target}.cu)
    file(CONFIGURE OUTPUT ${made} CONTENT "#include \"${all}\"\n")
    add_executable(${target})
    kernel_sources(${target} ${made})
    target_link_libraries(${target} PRIVATE flashsteps_flags)
  endif()
endfunction()

set(FLASHSTEPS_SM_90_ALONE "" CACHE STRING "Steps that are compiled for sm_90 alone, in less than half the time (gpu)")

# add_step(05_flash_v2), for the folder steps/05_flash_v2:
#   step_05_flash_v2   what the step offers, as a library: flash_v2::step(), which step.cu defines in the namespace that the folder
#                      is named after. Another step may link it, and has the launches without the headers (link_step). A kernel file's
#                      name may say for which architecture it is compiled, as NAME.sm_90.cu does (cmake/architectures.cmake)
#   this_step_…        the same as run::this_step(), for an executable that has no other step
#   05_flash_v2        bin/05_flash_v2: both, and main() (or the folder's own main.cpp)
# A step.cmake in the folder may add to them.
# tests/tools/toy_step is a step that does all of this.
function(add_step name)
  set(folder ${PROJECT_SOURCE_DIR}/steps/${name})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cu)
  set(newer_sources ${sources})
  list(FILTER newer_sources INCLUDE REGEX "\\.sm_[0-9]+a?\\.cu$")
  list(FILTER sources EXCLUDE REGEX "\\.sm_[0-9]+a?\\.cu$")
  add_library(step_${name} OBJECT)
  kernel_sources(step_${name} ${sources})
  target_link_libraries(step_${name} PUBLIC run)
  if(FLASHSTEPS_BACKEND STREQUAL "gpu" AND name IN_LIST FLASHSTEPS_SM_90_ALONE)
    set_target_properties(step_${name} PROPERTIES CUDA_ARCHITECTURES 90-real)
  endif()
  foreach(source IN LISTS newer_sources)
    string(REGEX REPLACE ".*\\.(sm_[0-9]+a?)\\.cu$" "step_${name}_\\1" newer ${source})
    if(NOT TARGET ${newer})
      add_kernels(${newer} run ${source})
      target_sources(step_${name} INTERFACE $<TARGET_OBJECTS:${newer}>)
      set_property(TARGET step_${name} APPEND PROPERTY FLASHSTEPS_NEWER ${newer})
    else()
      kernel_sources(${newer} ${source})
    endif()
  endforeach()

  if(EXISTS ${folder}/main.cpp)
    add_executable(${name} ${folder}/main.cpp)
    target_link_libraries(${name} PRIVATE step_${name} run)
  else()
    string(REGEX REPLACE "^[0-9]+_" "" FLASHSTEPS_NAMESPACE ${name})
    set(this_step ${PROJECT_BINARY_DIR}/steps/this_step_${name}.cpp)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/this_step.cpp.in ${this_step} @ONLY)
    add_library(this_step_${name} OBJECT ${this_step})
    target_link_libraries(this_step_${name} PUBLIC run)
    add_executable(${name} $<TARGET_OBJECTS:step_main>)
    target_link_libraries(${name} PRIVATE this_step_${name} step_${name} run)
  endif()
  include(${folder}/step.cmake OPTIONAL)
endfunction()

# link_step(06_backward 05_flash_v2), in a step.cmake: whoever links the first step has the second one's flash_v2::step(), too. So have
# the first step's exercises.
function(link_step name other)
  target_sources(step_${name} INTERFACE $<TARGET_OBJECTS:step_${other}>)
  set_property(TARGET step_${name} APPEND PROPERTY FLASHSTEPS_LINKED $<TARGET_OBJECTS:step_${other}>)
endfunction()

# add_step_tests(05_flash_v2), for the folder tests/steps/05_flash_v2: tests/test_05_flash_v2 of all its sources, linked with the step
# and with what every step of its family must pass. schedules.cpp is for the simulator: a GPU has one schedule, its own.
function(add_step_tests name)
  set(folder ${PROJECT_SOURCE_DIR}/tests/steps/${name})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  file(GLOB kernels CONFIGURE_DEPENDS ${folder}/*.cu)
  if(NOT FLASHSTEPS_BACKEND STREQUAL "sim")
    list(REMOVE_ITEM sources ${folder}/schedules.cpp)
  endif()
  add_executable(test_${name} ${sources})
  kernel_sources(test_${name} ${kernels})
  target_link_libraries(test_${name} PRIVATE $<TARGET_NAME_IF_EXISTS:this_step_${name}> step_${name} suites device_table)
  register_catch_test(${name} ${name})
endfunction()

# Every folder steps/NN_name/exercises/N_name:
#   with a task.cuh    exercises/exercise_NN_name_N_name_task from what the reader writes, and …_solution from solutions/NN_name/N_name.
#                      CI holds the grader to both: it must reject the task as we ship it, and accept the solution. A handout
#                      (make handout) has no solutions/, and then there is no such target
#   with a task.cu     the same for plain CUDA: with the exercise's check.cu behind it, which has main()
#   without one        asks for numbers or names; if it has an exercise.cu, the grader counts them with exercises/exercise_NN_name_N_name
function(add_exercises step)
  set(solutions ${PROJECT_SOURCE_DIR}/solutions/${step})
  file(GLOB ours CONFIGURE_DEPENDS ${solutions}/*/solution.cu*)  # a solution may come or go
  file(GLOB exercises CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/steps/${step}/exercises/*/exercise.cu)
  foreach(exercise IN LISTS exercises)
    get_filename_component(folder ${exercise} DIRECTORY)
    get_filename_component(name ${folder} NAME)
    if(EXISTS ${folder}/task.cuh)
      exercise_kernel(${step} ${folder} task ${folder}/task.cuh)
      if(EXISTS ${solutions}/${name}/solution.cuh)
        exercise_kernel(${step} ${folder} solution ${solutions}/${name}/solution.cuh)
      endif()
    elseif(FLASHSTEPS_BACKEND STREQUAL "sim")
      exercise_executable(${step} exercise_${step}_${name} ${exercise})
    endif()
  endforeach()
  file(GLOB checks CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/steps/${step}/exercises/*/check.cu)
  foreach(check IN LISTS checks)
    get_filename_component(folder ${check} DIRECTORY)
    get_filename_component(name ${folder} NAME)
    foreach(source ${folder}/task.cu ${solutions}/${name}/solution.cu)
      if(EXISTS ${source})
        get_filename_component(kernel ${source} NAME_WE)
        set(target exercise_${step}_${name}_${kernel})
        add_plain_cuda(${target} ${source} ${check})
        set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL TRUE RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/exercises")
      endif()
    endforeach()
  endforeach()
endfunction()

# Built when they are asked for: exercises/exercise_NN_name_N_name_KERNEL, from a kernel file and the exercise's host side.
function(exercise_kernel step folder kernel file)
  get_filename_component(name ${folder} NAME)
  set(target exercise_${step}_${name}_${kernel})
  # One source file cannot have two sets of flags, so each target compiles a one-line file of its own.
  file(CONFIGURE OUTPUT ${target}.cu CONTENT
    "#define EXERCISE_KERNEL \"${file}\"\n#include \"${folder}/exercise.cu\"\n")
  exercise_executable(${step} ${target} ${CMAKE_CURRENT_BINARY_DIR}/${target}.cu)
  set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL TRUE)
endfunction()

function(exercise_executable step target source)
  get_property(linked TARGET step_${step} PROPERTY FLASHSTEPS_LINKED)
  add_executable(${target} $<TARGET_OBJECTS:step_main> ${linked})
  kernel_sources(${target} ${source})
  if(FLASHSTEPS_BACKEND STREQUAL "sim")  # a warning must not keep a reader from running what they wrote
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -Wno-error)
  endif()
  target_link_libraries(${target} PRIVATE run)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/exercises")
endfunction()

# add_catch_test(unit/problem libraries…): tests/unit/test_problem.cpp, one ctest entry, "problem".
function(add_catch_test path)
  get_filename_component(folder ${path} DIRECTORY)
  get_filename_component(name ${path} NAME)
  add_executable(test_${name} ${folder}/test_${name}.cpp)
  target_link_libraries(test_${name} PRIVATE ${ARGN} catch_main)
  register_catch_test(${name})
endfunction()

# register_catch_test(NAME [step]): the ctest entry of test_NAME. Its test cases tagged [.long] are another one, NAME_long, which only
# `make test-all` runs. Entries bear the label of their step.
function(register_catch_test name)
  quick_to_compile(test_${name})
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND test_${name} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 LABELS "${ARGN}")
  get_target_property(sources test_${name} SOURCES)
  foreach(source IN LISTS sources)
    if(source MATCHES "[$]")
      continue()
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})  # a tag may come or go
    file(STRINGS ${source} long_cases REGEX "\\[\\.long\\]")
    if(long_cases AND NOT TEST ${name}_long)
      add_test(NAME ${name}_long COMMAND test_${name} "[long]" WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
      set_tests_properties(${name}_long PROPERTIES TIMEOUT 900 LABELS "long;${ARGN}")
    endif()
  endforeach()
endfunction()

# add_pytest(cli/cli_gemm [LONG | ONLY_LONG] [STEP step | EXCEPT steps…]): tests/cli/test_cli_gemm.py, or what the folder tests/cli/cli_gemm has, one ctest entry, "cli_gemm"; with LONG,
# what it marks as long is another one, cli_gemm_long; with ONLY_LONG there is but that one. With STEP, the entry is "cli_gemm_STEP", bears the step's label, and runs what has the
# step's name in it; with EXCEPT, it runs the rest. `entries` lists them. tests/tools/test_registered.py: none is forgotten.
set(FLASHSTEPS_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "The Python that tools/bootstrap set up")
function(add_pytest path)
  cmake_parse_arguments(PARSE_ARGV 1 pytest "LONG;ONLY_LONG" "STEP" "EXCEPT")
  get_filename_component(folder ${path} DIRECTORY)
  get_filename_component(name ${path} NAME)
  set(files tests/${folder}/test_${name}.py)
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/${files})
    file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests/${path}/test_*.py)
  endif()
  set(command ${FLASHSTEPS_PYTHON} -m pytest -q -rs -p no:cacheprovider ${files})
  if(pytest_STEP)
    list(APPEND command -k ${pytest_STEP})
    string(APPEND name _${pytest_STEP})
  elseif(pytest_EXCEPT)
    list(JOIN pytest_EXCEPT " or " steps)
    list(APPEND command -k "not (${steps})")
  endif()
  set(entries)
  if(NOT pytest_ONLY_LONG)
    add_test(NAME ${name} COMMAND ${command} -m "not long" WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(${name} PROPERTIES LABELS "${pytest_STEP}")
    list(APPEND entries ${name})
  endif()
  if(pytest_LONG OR pytest_ONLY_LONG)
    add_test(NAME ${name}_long COMMAND ${command} -m long WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(${name}_long PROPERTIES LABELS "long;${pytest_STEP}")
    list(APPEND entries ${name}_long)
  endif()
  # NumPy on one core: tests run beside each other, and its threads spend the time waiting for a core.
  set_tests_properties(${entries} PROPERTIES TIMEOUT 900
    ENVIRONMENT "FLASHSTEPS_BIN=${PROJECT_BINARY_DIR}/bin;PYTHONDONTWRITEBYTECODE=1;OPENBLAS_NUM_THREADS=1")
  set(entries ${entries} PARENT_SCOPE)
endfunction()
