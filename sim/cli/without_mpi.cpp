// In the place of mpi_ranks.cpp.
#include <stdexcept>

#include "cli/ranks.hpp"

namespace stepcast {

const bool mpi_is_built = false;

struct Ranks::State {};

Ranks::Ranks() { throw std::logic_error("built without MPI"); }
Ranks::~Ranks() = default;
void Ranks::send(int, char, const std::string&) {}
std::optional<Ranks::Message> Ranks::receive() { return std::nullopt; }
void Ranks::leave() {}
void Ranks::abort_at_exit() {}

}  // namespace stepcast
