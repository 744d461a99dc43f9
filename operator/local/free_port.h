// Thread-safety: any thread.
#pragma once

namespace trainyard::local {

// A TCP port of the loopback that nobody listens on now, outside the range from which the kernel takes ports for
// outgoing connections, and not one that was returned before if that can be helped. 0 if there is none.
int FreePort();

}  // namespace trainyard::local
