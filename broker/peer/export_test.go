package peer

import "time"

// Hasten has the forwarder look after its peers that often, and doubt what it hears that long.
func (f *Forwarder) Hasten(interval, doubt time.Duration) {
	f.watches.interval, f.watches.doubt = interval, doubt
}

// Watched says at how many peers it has calls.
func (f *Forwarder) Watched() int {
	f.watches.mu.Lock()
	defer f.watches.mu.Unlock()
	return len(f.watches.peers)
}
