# No family's: a main() of its own.
target_link_libraries(00_ceilings PRIVATE CLI11::CLI11 nlohmann_json::nlohmann_json)
target_compile_definitions(00_ceilings PRIVATE FLASHSTEPS_MACHINE="${PROJECT_SOURCE_DIR}/docs/machine/h200.json")
