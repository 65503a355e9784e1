package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/plural"
)

// ServiceClients are the clients of a locality that subscribe to a service.
type ServiceClients struct {
	Service  string
	Locality isobar.Locality
	Streams  int
	Since    time.Time // when the oldest of the streams was opened
	Silent   int       // of Streams, those whose client reports no load
	Node     string    // of a client that is silent
	Peer     string    // its address
	// IgnoreORCA counts those of Streams whose client ignores the utilization that endpoints
	// report, and Agent is the user agent of one of them.
	IgnoreORCA int
	Agent      string
}

const (
	// unusedFor is for how long clients subscribe to a service before it is told that
	// no load arrives.
	unusedFor = time.Minute
	// mostNamed bounds the names in a sentence.
	mostNamed = 3
)

// SilentOf lists who is silent of the clients of a service. all is sorted by service.
func SilentOf(all []ServiceClients, service string) (out []plan.SilentClients) {
	i, _ := slices.BinarySearchFunc(all, service, func(c ServiceClients, name string) int { return strings.Compare(c.Service, name) })
	for ; i < len(all) && all[i].Service == service; i++ {
		if n := all[i].Silent; n > 0 {
			out = append(out, plan.SilentClients{Source: all[i].Locality, Clients: n})
		}
	}
	return out
}

// silentOnly returns the entries that have silent clients.
func silentOnly(all []ServiceClients) (out []ServiceClients) {
	for i := range all {
		if all[i].Silent > 0 {
			out = append(out, all[i])
		}
	}
	return out
}

// subscribers reports clients that report no load, and services that get none.
func (b *statusBuilder) subscribers(p *plan.Plan, all []ServiceClients, now time.Time) {
	b.silent(all)
	if p == nil {
		return
	}
	var idle []string
	for i := 0; i < len(all); {
		name, streams, silent, since := all[i].Service, 0, 0, all[i].Since
		ignore, agent := 0, ""
		for ; i < len(all) && all[i].Service == name; i++ {
			streams += all[i].Streams
			silent += all[i].Silent
			ignore += all[i].IgnoreORCA
			agent = cmp.Or(agent, all[i].Agent)
			if all[i].Since.Before(since) {
				since = all[i].Since
			}
		}
		svc, ok := p.Service(name)
		if ok && silent < streams && now.Sub(since) >= unusedFor && !hasLoad(svc) {
			idle = append(idle, name)
		}
		if ok && ignore > 0 && wantsORCA(p, name) {
			b.attend(NewAttention(ORCAIgnored, "%d of %s of %s %s the utilization that endpoints report, "+
				"so requests are distributed evenly within a locality (one is %s)",
				ignore, plural.Count(streams, "client", "clients"), name, plural.Of(ignore, "ignores", "ignore"), agent).
				Of(name).See("isobar clients"))
		}
	}
	b.idle(idle)
}

// wantsORCA reports whether clients of a service should weight endpoints by the
// utilization that these report.
func wantsORCA(p *plan.Plan, service string) bool {
	if p.Topology == nil {
		return false
	}
	spec, ok := p.Topology.Service(service)
	return ok && spec.ORCA.On
}

// hasLoad reports whether any load of a service is known, also of before.
func hasLoad(svc *plan.Service) bool {
	if svc.Result == nil {
		return false
	}
	for i := range svc.Result.Sources {
		if svc.Result.Sources[i].Demand > 0 {
			return true
		}
	}
	return false
}

// idle reports services that clients subscribe to, and on which no load arrives from
// clients that do report. Where load arrives for others they may just be idle.
func (b *statusBuilder) idle(services []string) {
	if len(services) == 0 {
		return
	}
	text, severity := "their clients send no requests, or report load under another name", Notice
	switch {
	case len(b.UnknownClusters) > 0:
		text, severity = fmt.Sprintf("clients report load for clusters that are not services (%s): name the cluster, or its EDS service_name, like the service",
			someOf(b.UnknownClusters)), Warning
	case b.Demand == 0:
		text, severity = "no load arrives for any service: the clients send no requests, or Isobar ignores their reports; "+
			"see isobar_lrs_rejected_entries_total and isobar_lrs_unsubscribed_entries_total", Warning
	}
	item := NewAttention(NoLoad, "clients subscribe to %s, and no load arrives: %s", someOf(services), text).As(severity).See("isobar clients")
	if len(services) == 1 {
		item = item.Of(services[0])
	}
	b.attend(item)
}

// silent reports clients that report no load, a line for each locality.
func (b *statusBuilder) silent(all []ServiceClients) {
	type group struct {
		services []string
		most     *ServiceClients
	}
	groups := map[isobar.Locality]*group{}
	for i := range all {
		c := &all[i]
		if c.Silent == 0 {
			continue
		}
		g := groups[c.Locality]
		if g == nil {
			g = &group{most: c}
			groups[c.Locality] = g
		}
		g.services = append(g.services, c.Service)
		if c.Silent > g.most.Silent {
			g.most = c
		}
	}
	for _, l := range slices.SortedFunc(maps.Keys(groups), isobar.Locality.Compare) {
		g := groups[l]
		place, services := placeOf(l), someOf(g.services)
		said := fmt.Sprintf("1 client in %s subscribes to %s and reports no load, so Isobar does not plan for its requests (node %q at %s): "+
			"give it a load report stream", place, services, g.most.Node, g.most.Peer)
		if n := g.most.Silent; n != 1 {
			said = fmt.Sprintf("%d clients in %s subscribe to %s and report no load, so Isobar does not plan for their requests (one is node %q at %s): "+
				"give them a load report stream", n, place, services, g.most.Node, g.most.Peer)
		}
		item := NewAttention(ClientsSilent, "%s", said).At(l).By(g.most.Node).See("isobar clients")
		if len(g.services) == 1 {
			item = item.Of(g.services[0])
		}
		b.attend(item)
	}
}

// unknownClusters reports names in load reports that are no services.
func (b *statusBuilder) unknownClusters(p *plan.Plan) {
	if p == nil {
		return
	}
	names := p.ServiceNames()
	for _, cluster := range b.UnknownClusters {
		b.attend(NewAttention(ClusterUnknown, "clients report load for cluster %q, which is not a service%s", cluster, meant(b.nearest, cluster, names)))
	}
}

// localities reports clients in places that nothing else knows.
func (b *statusBuilder) localities(p *plan.Plan, all []Client) {
	if p == nil || p.Topology == nil {
		return
	}
	known := b.places(p)
	if len(known.zones) < 2 {
		return // all are equally far from what there is
	}
	found := map[string]*Client{}
	count := map[string]int{}
	for i := range all {
		c := &all[i]
		found[c.Locality] = cmp.Or(found[c.Locality], c)
		count[c.Locality]++
	}
	for _, text := range slices.Sorted(maps.Keys(found)) {
		c := found[text]
		l, err := isobar.ParseLocality(text)
		if err != nil && text != "" {
			continue
		}
		who := fmt.Sprintf("1 client in %s (node %q at %s)", placeOf(l), c.ID, c.Peer)
		if n := count[text]; n != 1 {
			who = fmt.Sprintf("%d clients in %s (one is node %q at %s)", n, placeOf(l), c.ID, c.Peer)
		}
		said, severity := known.trouble(l, b.nearest)
		if said == "" {
			continue
		}
		item := NewAttention(LocalityUnknown, "%s: %s", who, said).At(l).By(c.ID).As(severity).See("isobar clients")
		b.attend(item)
	}
}

// places are the regions and zones that services and network entries name.
type places struct {
	regions map[string]bool
	zones   map[isobar.Locality]bool // without their parts
}

func (p *places) zoneNames() []string {
	out := make([]string, 0, len(p.zones))
	for z := range p.zones {
		out = append(out, z.String())
	}
	slices.Sort(out)
	return out
}

// trouble says what follows from the place of clients that no service and no network entry
// names, and how severe that is; "" = it is known.
func (p *places) trouble(l isobar.Locality, nearest func(name string, names []string, most int) []string) (said string, severity Severity) {
	switch {
	case l.IsZero():
		return "all localities count as far away: set node.locality", Warning
	case p.zones[isobar.Locality{Region: l.Region, Zone: l.Zone}]:
		return "", Notice
	case p.regions[l.Region]:
		return "no service and no network entry names the zone, so the other zones of its region count as equally near" +
			meant(nearest, l.String(), p.zoneNames()), Notice
	}
	return "no service and no network entry names the region, so all localities count as equally far away" +
		meant(nearest, l.Region, slices.Sorted(maps.Keys(p.regions))), Warning
}

// placesOf remembers the places of the newest topology, which are the same in all of its
// plans.
type placesOf struct {
	mu       sync.Mutex
	topology *isobar.Topology
	known    places
}

func (c *placesOf) get(p *plan.Plan) places {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topology != p.Topology {
		c.topology, c.known = p.Topology, knownPlaces(p)
	}
	return c.known
}

func knownPlaces(p *plan.Plan) places {
	out := places{regions: map[string]bool{}, zones: map[isobar.Locality]bool{}}
	add := func(l isobar.Locality) {
		if l.IsZero() {
			return
		}
		out.regions[l.Region] = true
		if l.Zone != "" {
			out.zones[isobar.Locality{Region: l.Region, Zone: l.Zone}] = true
		}
	}
	for _, svc := range p.Services {
		for i := range svc.Spec.Localities {
			add(svc.Spec.Localities[i].Locality)
		}
	}
	for _, r := range p.Topology.Network.Rules() {
		add(r.From)
		add(r.To)
	}
	for _, r := range p.Topology.Network.Egress() {
		add(r.From)
		add(r.To)
	}
	return out
}

// excess names clients whose reports are ignored because they are too many.
func (b *statusBuilder) excess(all []Client, now time.Time) {
	for i := range all {
		c := &all[i]
		if c.LRS == nil || c.LRS.Excess == 0 || now.Sub(c.LRS.LastExcess) > unusedFor {
			continue
		}
		b.attend(NewAttention(ExcessReports, "the client %q at %s sends load reports far more often than Isobar asked for: %s ignored; "+
			"it must use the interval of the server's response",
			c.ID, c.Peer, plural.Count(c.LRS.Excess, "report was", "reports were")).By(c.ID).See("isobar clients"))
	}
}

// placeOf names a locality in a sentence.
func placeOf(l isobar.Locality) string {
	if l.IsZero() {
		return "no locality"
	}
	return l.String()
}

// someOf lists a few names and counts the others.
func someOf(names []string) string {
	if len(names) <= mostNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), len(names)-mostNamed)
}
