// The only file of sim/ that includes MPI.
#include <cstdlib>
#include <list>

#include <mpi.h>

#include "cli/ranks.hpp"

namespace stepcast {

const bool mpi_is_built = true;

struct Ranks::State {
  struct Transfer {
    MPI_Request request = MPI_REQUEST_NULL;
    Message message;
  };
  std::list<Transfer> sent;      // until MPI has taken them
  std::list<Transfer> received;  // until they are whole; for ever when the sender dies before that
};

namespace {

bool is_complete(MPI_Request& request) {
  int complete = 0;
  return MPI_Test(&request, &complete, MPI_STATUS_IGNORE) != MPI_SUCCESS || complete != 0;
}

}  // namespace

Ranks::Ranks() : state_(std::make_unique<State>()) {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // a dead rank is no reason to end
}

Ranks::~Ranks() = default;

void Ranks::send(int to, char kind, const std::string& text) {
  State::Transfer& transfer = state_->sent.emplace_back();
  transfer.message = {to, kind, text};
  MPI_Isend(transfer.message.text.data(), static_cast<int>(text.size()), MPI_CHAR, to, kind,
            MPI_COMM_WORLD, &transfer.request);
  state_->sent.remove_if([](State::Transfer& one) { return is_complete(one.request); });
}

std::optional<Ranks::Message> Ranks::receive() {
  int is_there = 0;
  MPI_Message matched = MPI_MESSAGE_NULL;
  MPI_Status status;
  while (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, &matched, &status) ==
             MPI_SUCCESS &&
         is_there != 0) {
    int size = 0;
    MPI_Get_count(&status, MPI_CHAR, &size);
    State::Transfer& transfer = state_->received.emplace_back();
    transfer.message = {status.MPI_SOURCE, static_cast<char>(status.MPI_TAG),
                        std::string(static_cast<std::size_t>(size), '\0')};
    MPI_Imrecv(transfer.message.text.data(), size, MPI_CHAR, &matched, &transfer.request);
  }
  for (auto one = state_->received.begin(); one != state_->received.end(); ++one) {
    if (!is_complete(one->request)) continue;
    Message message = std::move(one->message);
    state_->received.erase(one);
    return message;
  }
  return std::nullopt;
}

void Ranks::leave() { MPI_Finalize(); }

void Ranks::abort_at_exit() {
  ::on_exit([](int code, void*) { MPI_Abort(MPI_COMM_WORLD, code); }, nullptr);
}

}  // namespace stepcast
