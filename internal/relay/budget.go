package relay

import "github.com/isobar-xds/isobar/internal/replica/peerv1"

// Bounds on load reports, in bytes as they are sent. In memory the leader's take about four times as much.
const (
	// keptMemory is how much a replica keeps of earlier calls for a new leader, and keptOfOne of it those
	// of one address without certificate. The reports of 5,000 clients on 10 services in 10 localities each
	// take 28 MiB, those of six calls a second apart, with a report interval of 5 s.
	keptMemory = 128 << 20
	keptOfOne  = keptMemory / 4
	// waitingMemory is how much the leader takes from one replica until it decides, and waitingOfOne of it
	// from one address without certificate: what the replica itself takes from it until then.
	waitingMemory = 192 << 20
	waitingOfOne  = waitingMemory / 4
	// accountsHeld is for how many addresses a budget keeps its memory.
	accountsHeld = 10_000
)

// budget bounds the memory of load reports, of all clients and of those of one address without
// certificate.
type budget struct {
	most, mostOfOne int
	used            int
	of              map[string]int // by address without certificate
	refused         uint64         // windows
}

func newBudget(most, mostOfOne int) *budget {
	return &budget{most: most, mostOfOne: mostOfOne, of: map[string]int{}}
}

// take counts so many bytes of an address, "" = none, and reports whether there is memory for them.
func (b *budget) take(address string, bytes int) bool {
	if b.used+bytes > b.most || address != "" && b.of[address]+bytes > b.mostOfOne {
		b.refused++
		return false
	}
	b.used += bytes
	if address != "" {
		b.of[address] += bytes
	}
	return true
}

// release forgets what was counted.
func (b *budget) release() {
	b.used = 0
	if len(b.of) > accountsHeld {
		b.of = map[string]int{}
	}
	clear(b.of)
}

// windowAddress is the name under which a window counts, "" for a client with a certificate: a
// whole fleet often has one.
func windowAddress(w *peerv1.StreamWindow) string {
	if w.GetIdentified() {
		return ""
	}
	return w.GetAccount()
}
