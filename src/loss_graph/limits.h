// The limits of a loss graph. Together they bound what a client can make the server hold and compute.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tuft::loss_graph {

struct Limits {
  size_t text_bytes = 64 << 10;      // of the graph as JSON
  size_t nodes = 512;                // with placeholders and output
  size_t inputs = 16;                // with logprobs
  size_t values = 8192;              // in the arguments of all nodes, those in lists included
  size_t resolved_values = 16384;    // the same with the items of the lists that the arguments refer to
  int depth = 8;                     // of lists in an argument
  size_t metrics = 64;               // that the graph returns
  size_t steps = 8192;               // arrays that a graph makes; most nodes make one
  int64_t array_elements = 1 << 21;  // of one array
  // The elements of all arrays of one evaluation, each of which takes 8 or 16 bytes. A reduction counts the elements
  // that it reads, and an element of a function counts the cost of the function.
  int64_t evaluation_elements = 1 << 23;
};

}  // namespace tuft::loss_graph
