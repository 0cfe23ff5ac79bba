// Catch2 2.13 wants its main compiled by us; version 3 links one.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
