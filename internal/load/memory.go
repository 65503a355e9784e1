package load

import (
	"cmp"
	"slices"

	"github.com/isobar-xds/isobar"
)

// DefaultMemory is how much memory a table may use for the load of all clients, in bytes.
const DefaultMemory = 1536 << 20

// The limits below are far above what an honest fleet of the documented size needs. 5,000 clients that report
// on 10 of 1,000 services each make 50,000 flows, of which one counts with about 1.1 KiB in up to 4
// localities, 1.9 KiB in 10, and 3.3 KiB in 10 with two metrics each. With the sources of 1,000 services in 10
// localities (10 MiB) and the streams (2 MiB), that is 65, 103 and 170 MiB. All of it may come from one
// address, such as a NAT: it may use 192 MiB as long as others use less than 384 MiB. If such clients
// reconnect, they take over their flows.
const (
	// accountMemory is the part of the memory, one in so many, that the clients of one address without
	// certificate may use, and that all addresses together leave to clients with one.
	accountMemory = 8
	// fairPart is the part of the rest, one in so many, that one address may use if that is less: however
	// many addresses use as much as they may, some memory is left for the next one.
	fairPart = 4
	// modestMemory is what an address may use in any case as long as any memory is left, in bytes: one client
	// with about 14 services.
	modestMemory = 16 << 10
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
// endpoints and metrics. Flows that a table has stay; new ones are not kept where no memory is left. Each merge counts
// the memory again, so nothing has to be returned when streams, flows and sources end.
type memory struct {
	most    int
	used    int
	of      map[string]int // of it, by address without certificate
	refused uint64         // windows of a client and a service that were not kept, or in part
}

// Memory is how much memory a table uses for the load of clients, in bytes.
type Memory struct {
	Used, Most         int
	Fullest, MostOfOne int    // of the address without certificate that uses most
	Refused            uint64 // windows of a client and a service that were not kept, or in part, in all
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
	part := m.most / accountMemory
	return max(modestMemory, min(part, (m.most-part-m.used)/fairPart))
}

// shrink lets a window take at most so many bytes. Its totals stay: the demand of its client counts as before,
// and only less is known of where it lands.
func (w *window) shrink(most int) {
	for i := range w.sites {
		w.sites[i].details = nil
	}
	if w.bytes() <= most {
		return
	}
	w.drops = nil
	slices.SortStableFunc(w.sites, func(a, b siteWindow) int { return cmp.Compare(b.issued, a.issued) })
	n := 0
	for n < len(w.sites) {
		if most -= w.sites[n].bytes(); most < 0 {
			break
		}
		n++
	}
	w.sites = append(make([]siteWindow, 0, n), w.sites[:n]...)
	slices.SortFunc(w.sites, func(a, b siteWindow) int { return a.compare(b.locality) })
}

// bytes is the memory of a window, as if it shared no locality and no name with others.
func (w *window) bytes() int {
	out := (cap(w.sites) - len(w.sites)) * siteBytes
	for i := range w.drops {
		out += listedBytes + len(w.drops[i].Category)
	}
	for i := range w.sites {
		out += w.sites[i].bytes()
	}
	return out
}

func (s *siteWindow) bytes() int {
	out := siteBytes
	if s.locality != nil {
		out += placeBytes + nameBytes(s.locality)
	}
	if s.details != nil {
		out += s.details.bytes()
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
