package load

import "github.com/isobar-xds/isobar"

// DefaultMemory is how much memory a table may use for the load of all clients, in bytes.
const DefaultMemory = 1536 << 20

const (
	// accountMemory is the part of the memory, one in so many, that the clients of one address without
	// certificate may use.
	accountMemory = 8
	// ample is the part of the memory, one in so many, up to which that is the only limit. Above it, all
	// addresses get equal parts of the rest: a few of them can't leave nothing to the others.
	ample = 2
	// leastWindow is how many bytes a window counts with at least, so that a client may
	// begin to send to a few localities more when no memory is left.
	leastWindow = 512
)

// Bytes of the parts of a table, with the pointers to them, on a platform of 64 bits.
const (
	streamBytes = 360
	flowBytes   = 576  // without its window
	sourceBytes = 1024 // with the evidence about it, and its shares in a plan
	siteBytes   = 64
	detailBytes = 48
	listedBytes = 32 // of a metric, an endpoint or a category of drops
	placeBytes  = 48 // of a locality
)

// memory bounds the memory of a table. Clients choose how large a table grows: they name localities,
// endpoints and metrics. Flows that a table has stay; new ones are not kept where no memory is left.
type memory struct {
	most    int
	used    int
	of      map[string]int // of it, by address without certificate
	refused uint64         // windows of a client and a service that were not kept
}

// Memory is how much memory a table uses for the load of clients, in bytes.
type Memory struct {
	Used, Most         int
	Fullest, MostOfOne int    // of the address without certificate that uses most
	Refused            uint64 // windows of a client and a service that were not kept, in all
}

// weigh counts the memory of a table. A source counts for the address that it came
// from first: it stays for minutes when its clients have left.
func (m *memory) weigh(t *Table) {
	m.used = 0
	clear(m.of)
	for _, s := range t.streams {
		bytes := streamBytes + len(s.node.ID) + len(s.node.Cluster) + len(s.account) + nameBytes(&s.node.Locality)
		for _, f := range s.flows {
			bytes += f.bytes
		}
		m.add(s.address(), bytes)
	}
	for _, name := range t.names {
		for _, src := range t.services[name].sources {
			m.add(src.founder, sourceBytes+nameBytes(&src.locality))
		}
	}
}

// address is the name under which the memory of a stream counts; "" = that of all only. A fleet often has
// one certificate.
func (s *stream) address() string {
	if s.identified {
		return ""
	}
	return s.account
}

func (m *memory) add(address string, bytes int) {
	m.used += bytes
	if address != "" {
		m.of[address] += bytes
	}
}

// take counts memory, and reports whether there is some.
func (m *memory) take(address string, bytes int) bool {
	if m.used+bytes > m.most || address != "" && m.of[address]+bytes > m.mostOfOne() {
		return false
	}
	m.add(address, bytes)
	return true
}

// mostOfOne is how much memory an address without certificate may use now.
func (m *memory) mostOfOne() int {
	most, rest := m.most/accountMemory, m.most-m.most/ample
	if m.used > m.most/ample {
		most = min(most, rest/max(1, len(m.of)))
	}
	return most
}

// bytes is the memory of a window, as if it shared no locality and no name with others.
func (w *window) bytes() int {
	out := cap(w.sites) * siteBytes
	for i := range w.drops {
		out += listedBytes + len(w.drops[i].Category)
	}
	for i := range w.sites {
		s := &w.sites[i]
		if s.locality != nil {
			out += placeBytes + nameBytes(s.locality)
		}
		if s.details != nil {
			out += s.details.bytes()
		}
	}
	return out
}

func (d *siteDetails) bytes() int {
	out := detailBytes
	for i := range d.metrics {
		out += listedBytes + len(d.metrics[i].Name)
	}
	for i := range d.endpoints {
		out += listedBytes + len(d.endpoints[i].Address)
	}
	return out
}

func nameBytes(l *isobar.Locality) int { return len(l.Region) + len(l.Zone) + len(l.SubZone) }
