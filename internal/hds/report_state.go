package hds

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/health"
)

// reportState is what a checker may report on, and its last word on each.
type reportState struct {
	slots     []slot // in the order of the specifier
	at        map[joint]int
	former    map[joint]bool           // of the specifier before: reports on them may be under way
	byAddress map[netip.AddrPort][]int // for the flat form; nil until it is needed
	assigned  *assignments             // that the slots agree with
	metadata  int                      // bytes, of all slots
	news      []int                    // slots that are not collected yet
}

// joint is what reports and specifiers are joined on.
type joint struct {
	service  string
	locality isobar.Locality
	address  netip.AddrPort
}

// slot is one endpoint.
type slot struct {
	key      health.Key
	locality isobar.Locality
	check    isobar.EndpointCheck // how it is probed, where it differs from other endpoints
	sockets  string               // TLS settings of its service, see [health.Sockets]
	from     time.Time            // reports before that may concern what stood there before

	status   isobar.HealthStatus // Unknown before the first report
	arrived  time.Time
	metadata string
	fresh    bool // not collected yet
}

func (s *slot) joint() joint {
	ap, _ := netip.ParseAddrPort(s.key.Address) // it stands in a specifier, which was checked
	return joint{s.key.Service, s.locality, netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())}
}

// renew makes the state of a new specifier; what stands in both is kept. To a
// checker an endpoint is its locality, its address, how it is probed and the TLS
// settings of its service: one that changed in any of that begins again there, as down, so that what was said
// of it before says nothing. Nor do reports before from, which were under way
// when the checker was told.
func (b *reportState) renew(slots []slot, from time.Time) reportState {
	next := reportState{slots: slots, at: make(map[joint]int, len(slots)), former: make(map[joint]bool, len(b.slots))}
	probed := make(map[health.Key]bool, len(b.slots))
	for i := range b.slots {
		probed[b.slots[i].key] = true
	}
	for i := range slots {
		s := &slots[i]
		j := s.joint()
		switch k, ok := b.at[j]; {
		case ok && b.slots[k].check == s.check && b.slots[k].sockets == s.sockets:
			*s = b.slots[k]
			next.metadata += len(s.metadata)
		case probed[s.key], b.former[j]:
			s.from = from
		}
		next.at[j] = i
		if s.fresh {
			next.news = append(next.news, i)
		}
	}
	for j := range b.at {
		if _, ok := next.at[j]; !ok {
			next.former[j] = true
		}
	}
	return next
}

// outcome is what became of the entries of a report.
type outcome struct {
	changed   bool // something differs from what was said before
	former    int  // entries on endpoints that were taken off the checker
	foreign   int  // entries on endpoints that it was never told to probe
	ambiguous int  // flat entries that fit several endpoints of different status
	crowded   int  // entries that count, but without their metadata, because of the limit
	sample    string
}

// add enters the entries of a report.
func (b *reportState) add(entries []convert.HealthEntry, flat bool, now time.Time) outcome {
	var o outcome
	if flat {
		b.addFlat(entries, now, &o)
		return o
	}
	for i := range entries {
		e := &entries[i]
		j := joint{e.Service, e.Locality, e.Address}
		k, ok := b.at[j]
		switch {
		case ok:
			b.set(k, e, now, &o)
		case b.former[j]:
			o.former++
		default:
			o.foreign++
			o.sample = e.Service + ": " + e.Address.String() + " in " + e.Locality.String() + " was not to be probed"
		}
	}
	return o
}

// addFlat enters entries that name an address only. Where several services
// have that address there is an entry for each, and nothing tells which is
// which: they count if they all say the same.
func (b *reportState) addFlat(entries []convert.HealthEntry, now time.Time, o *outcome) {
	if b.byAddress == nil {
		b.byAddress = make(map[netip.AddrPort][]int, len(b.slots))
		for i := range b.slots {
			ap := b.slots[i].joint().address
			b.byAddress[ap] = append(b.byAddress[ap], i)
		}
	}
	said := make(map[netip.AddrPort]isobar.HealthStatus, len(entries))
	divided := map[netip.AddrPort]bool{}
	for i := range entries {
		e := &entries[i]
		if before, twice := said[e.Address]; twice && before != e.Status {
			divided[e.Address] = true
		}
		said[e.Address] = e.Status
	}
	var formerly map[netip.AddrPort]bool
	for i := range entries {
		e := &entries[i]
		slots := b.byAddress[e.Address]
		switch {
		case len(slots) == 0:
			if formerly == nil {
				formerly = make(map[netip.AddrPort]bool, len(b.former))
				for j := range b.former {
					formerly[j.address] = true
				}
			}
			if formerly[e.Address] {
				o.former++
				continue
			}
			o.foreign++
			o.sample = e.Address.String() + " was not to be probed"
		case divided[e.Address]:
			o.ambiguous++
			o.sample = e.Address.String() + " is in several services, and a flat report does not tell which is meant"
		default:
			for _, k := range slots {
				b.set(k, e, now, o)
			}
		}
	}
}

// set notes what was said of slot k, and whether it is something else than
// before.
func (b *reportState) set(k int, e *convert.HealthEntry, now time.Time, o *outcome) {
	s := &b.slots[k]
	if now.Before(s.from) {
		o.former++
		return
	}
	o.changed = o.changed || s.status != e.Status
	s.status, s.arrived = e.Status, now
	if !s.fresh {
		s.fresh = true
		b.news = append(b.news, k)
	}
	metadata := e.Metadata
	if b.metadata-len(s.metadata)+len(metadata) > maxMetadata {
		metadata = ""
		o.crowded++
	}
	b.metadata += len(metadata) - len(s.metadata)
	s.metadata = metadata
}

func (b *reportState) fresh() int { return len(b.news) }

// collect appends what is new as reports of a checker, in the order of slots.
// What it says of endpoints that are other ones by the newest assignments, which it
// has not been told yet, is no word on those.
func (b *reportState) collect(checker string, newest *assignments, out []health.Report) []health.Report {
	same := b.assigned == nil || b.assigned.topology == newest.topology
	slices.Sort(b.news)
	for _, i := range b.news {
		s := &b.slots[i]
		s.fresh = false
		if !same && newest.altered(s) {
			continue
		}
		out = append(out, health.Report{
			Checker: checker, Service: s.key.Service, Locality: s.locality, Address: s.key.Address,
			Status: s.status, Arrived: s.arrived,
		})
	}
	b.news = b.news[:0]
	return out
}
