// The only file that includes SimGrid (3.32, Debian 12). What looks odd here answers a measured
// behaviour of that version; docs/simgrid.md lists them.
#include <array>
#include <cmath>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <simgrid/s4u.hpp>
#include <simgrid/version.h>
#include <xbt/log.h>

#include "engine/network.hpp"

namespace stepcast {
namespace {

namespace sg4 = simgrid::s4u;
using LinkImpl = simgrid::kernel::resource::StandardLinkImpl;

/// A flat zone with two hosts whose route is always that of the flow being started. SimGrid's own
/// zones cost quadratic memory or time, and cannot route two flows between the same hosts apart.
class ExplicitRouteZone : public simgrid::kernel::routing::NetZoneImpl {
 public:
  explicit ExplicitRouteZone(const std::string& name) : NetZoneImpl(name) {}

  std::vector<LinkImpl*> route;

  void get_local_route(const simgrid::kernel::routing::NetPoint* /*src*/,
                       const simgrid::kernel::routing::NetPoint* /*dst*/,
                       simgrid::kernel::routing::Route* into, double* /*latency*/) override {
    into->link_list_.insert(into->link_list_.end(), route.begin(), route.end());
  }
};

/// With these settings a flow takes exactly bytes / bandwidth: no TCP model, no traffic in the
/// other direction, events merged only when they are closer than 1e-14 s.
void configure() {
  xbt_log_control_set("root.thres:critical");  // it reports each setting
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/crosstraffic:0");
  sg4::Engine::set_config("network/TCP-gamma:0");
  sg4::Engine::set_config("surf/precision", 1e-14);
}

sg4::Engine& start_engine() {
  static std::string name = "stepcast";
  static std::array<char*, 2> argv = {name.data(), nullptr};
  static int argc = 1;
  static sg4::Engine engine(&argc, argv.data());
  configure();
  // SimGrid handles an interrupt by leaving in the middle of its work, with a scare on stderr.
  std::signal(SIGINT, SIG_DFL);
  return engine;
}

}  // namespace

std::string simgrid_version() {
  int major = 0;
  int minor = 0;
  int patch = 0;
  sg_version_get(&major, &minor, &patch);  // of the library, not of the header
  return std::to_string(major) + "." + std::to_string(minor) +
         (patch > 0 ? "." + std::to_string(patch) : "");
}

struct Network::Impl {
  struct Flow {
    sg4::CommPtr comm;
    std::uint64_t tag = 0;
    std::span<const int> links;
    Bytes bytes;
  };

  Impl() : engine(start_engine()), zone(new ExplicitRouteZone("net")) {  // SimGrid owns the zone
    src = zone->get_iface()->create_host("src", 1.0);
    dst = zone->get_iface()->create_host("dst", 1.0);
    sg4::Activity::on_completion_cb([this](const sg4::Activity& activity) { completed(activity); });
  }

  void start(Flow* flow) {
    zone->route.clear();
    for (const int link : flow->links) zone->route.push_back(links[static_cast<std::size_t>(link)]);
    flow->comm = sg4::Comm::sendto_init(src, dst);
    flow->comm->set_payload_size(
        static_cast<std::uint64_t>(std::llround(flow->bytes.value() * resolution_per_byte)));
    flow->comm->set_data(flow);
    flow->comm->vetoable_start();
  }

  void completed(const sg4::Activity& activity) {
    auto* flow = activity.get_data<Flow>();
    // A Comm must outlive its own completion callback: it is dropped at the next event.
    for (Flow* gone : finished) {
      gone->comm = nullptr;
      free.push_back(gone);
    }
    finished.assign(1, flow);
    if (activity.get_state() == sg4::Activity::State::FINISHED) sink->flow_done(flow->tag);
  }

  /// What happens at one date. SimGrid's timers are allocated one by one, so those set for the same
  /// date one after the other, as a step of a collective does, are one.
  struct Moment {
    double date = 0.0;
    std::vector<Flow*> starts;  ///< null: the timer of the next tag
    std::vector<std::uint64_t> tags;
  };

  Moment& moment_at(double date) {
    if (latest != nullptr && latest->date == date) return *latest;
    if (spare.empty()) {
      moments.push_back(std::make_unique<Moment>());
      spare.push_back(moments.back().get());
    }
    Moment* moment = latest = spare.back();
    spare.pop_back();
    moment->date = date;
    simgrid::kernel::timer::Timer::set(date, [this, moment] { pass(moment); });
    return *moment;
  }

  void pass(Moment* moment) {
    if (latest == moment) latest = nullptr;
    auto tag = moment->tags.begin();
    for (Flow* flow : moment->starts) {
      if (flow != nullptr)
        start(flow);
      else
        sink->timer(*tag++);
    }
    moment->starts.clear();
    moment->tags.clear();
    spare.push_back(moment);
  }

  Flow* new_flow() {
    if (free.empty()) {
      flows.push_back(std::make_unique<Flow>());
      return flows.back().get();
    }
    Flow* flow = free.back();
    free.pop_back();
    return flow;
  }

  sg4::Engine& engine;
  ExplicitRouteZone* zone;
  sg4::Host* src = nullptr;
  sg4::Host* dst = nullptr;
  std::vector<LinkImpl*> links;
  std::vector<std::unique_ptr<Flow>> flows;  ///< all that were ever needed at one time
  std::vector<Flow*> free;
  std::vector<Flow*> finished;
  std::vector<std::unique_ptr<Moment>> moments;  ///< all that were ever needed at one time
  std::vector<Moment*> spare;
  Moment* latest = nullptr;  ///< the one set last, if it is still to come
  Sink* sink = nullptr;
};

Network::Network() : impl_(std::make_unique<Impl>()) {}
Network::~Network() = default;

int Network::add_link(BytesPerSecond bandwidth) {
  const auto index = static_cast<int>(impl_->links.size());
  // Links have no latency of their own: SimGrid would share them in inverse proportion to it.
  sg4::Link* link = impl_->zone->get_iface()->create_link("l" + std::to_string(index),
                                                          bandwidth.value() * resolution_per_byte);
  link->seal();
  impl_->links.push_back(link->get_impl());
  return index;
}

void Network::seal() {
  impl_->zone->get_iface()->seal();
  impl_->engine.seal_platform();
}

Seconds Network::now() const { return Seconds{sg4::Engine::get_clock()}; }

void Network::start_flow(std::span<const int> links, Bytes bytes, Seconds delay,
                         std::uint64_t tag) {
  Impl::Flow* flow = impl_->new_flow();
  flow->tag = tag;
  flow->links = links;
  flow->bytes = bytes;
  if (delay > Seconds{0.0})
    impl_->moment_at((now() + delay).value()).starts.push_back(flow);
  else
    impl_->start(flow);
}

void Network::at(Seconds delay, std::uint64_t tag) {
  Impl::Moment& moment = impl_->moment_at((now() + delay).value());
  moment.starts.push_back(nullptr);
  moment.tags.push_back(tag);
}

void Network::run(Sink& sink) {
  impl_->sink = &sink;
  impl_->engine.run();
}

}  // namespace stepcast
