package table_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/table"
)

var (
	start    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	checkout = table.Key{Namespace: "shop", Name: "checkout"}
)

// world is a table with two zones, and the Service checkout with one port.
func world() *table.Table {
	t := table.New(table.Places{})
	t.SetNode(table.Node{Name: "n1", Region: "east", Zone: "a"})
	t.SetNode(table.Node{Name: "n2", Region: "east", Zone: "b"})
	t.SetService(table.Service{Key: checkout, Family: table.IPv4, Ports: []table.Port{{Name: "grpc", Number: 80}}})
	return t
}

// slice reads endpoints as "10.0.0.1 ready": address, state, and any of zone=,
// node=, uid= and ending. What is left out is zone a, no Node, a UID like the address.
func slice(t *testing.T, name string, endpoints ...string) table.Slice {
	t.Helper()
	s := table.Slice{
		Key: table.Key{Namespace: "shop", Name: name}, Service: "checkout", Family: table.IPv4, Version: 1, Ports: []table.Port{{Name: "grpc", Number: 8080}},
	}
	for _, text := range endpoints {
		words := strings.Fields(text)
		e := table.Endpoint{UID: "pod-" + words[0], Address: netip.MustParseAddr(words[0]), Zone: "a"}
		e.State = map[string]table.State{"ready": table.Ready, "draining": table.Draining, "unready": table.NotReady}[words[1]]
		e.Terminating = e.State == table.Draining
		for _, w := range words[2:] {
			field, value, _ := strings.Cut(w, "=")
			switch field {
			case "zone":
				e.Zone = value
			case "node":
				e.Node = value
			case "uid":
				e.UID = value
			case "ending":
				e.Terminating = true
			default:
				t.Fatalf("%q?", w)
			}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// take returns what has changed, a line a service: its localities with the
// endpoints, h for healthy, d for draining, u for unhealthy.
func take(t *table.Table, at time.Duration) string {
	changed, removed := t.Take(start.Add(at))
	lines := make([]string, 0, len(changed)+len(removed))
	for i := range changed {
		lines = append(lines, text(&changed[i]))
	}
	for _, name := range removed {
		lines = append(lines, "no "+name)
	}
	return strings.Join(lines, "\n")
}

func text(l *table.Listed) string {
	var b strings.Builder
	b.WriteString(l.Name)
	for _, at := range l.Localities {
		fmt.Fprintf(&b, " %s:", at.Locality)
		for _, e := range at.Endpoints {
			letter := map[isobar.HealthStatus]string{isobar.Healthy: "h", isobar.Draining: "d", isobar.Unhealthy: "u"}[e.Health]
			fmt.Fprintf(&b, " %s=%s", strings.TrimSuffix(e.Address, ":8080"), letter)
		}
	}
	return b.String()
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestConditions(t *testing.T) {
	yes, no := new(true), new(false)
	for _, c := range []struct {
		ready, serving, terminating *bool
		want                        table.State
	}{
		{nil, nil, nil, table.Ready},
		{yes, nil, nil, table.Ready},
		{yes, yes, yes, table.Ready}, // publishNotReadyAddresses
		{yes, no, no, table.Ready},
		{nil, no, yes, table.Ready},
		{no, yes, yes, table.Draining},
		{no, yes, nil, table.NotReady},
		{no, yes, no, table.NotReady},
		{no, nil, yes, table.NotReady},
		{no, no, yes, table.NotReady},
		{no, nil, nil, table.NotReady},
	} {
		if got := table.StateOf(c.ready, c.serving, c.terminating); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}

func TestStatesOfEndpoints(t *testing.T) {
	for name, c := range map[string]struct {
		endpoints []string
		want      string
	}{
		"ready ones are served":                                {[]string{"10.0.0.1 ready", "10.0.0.2 ready zone=b"}, "checkout.shop:80 east/a: 10.0.0.1=h east/b: 10.0.0.2=h"},
		"ready ones are healthy while they terminate":          {[]string{"10.0.0.1 ready ending"}, "checkout.shop:80 east/a: 10.0.0.1=h"},
		"those that end drain":                                 {[]string{"10.0.0.1 ready", "10.0.0.2 draining"}, "checkout.shop:80 east/a: 10.0.0.1=h 10.0.0.2=d"},
		"those that end serve where nothing is ready":          {[]string{"10.0.0.1 draining", "10.0.0.2 unready"}, "checkout.shop:80 east/a: 10.0.0.1=h"},
		"those that end drain where another zone has ready":    {[]string{"10.0.0.1 draining", "10.0.0.2 ready zone=b"}, "checkout.shop:80 east/a: 10.0.0.1=d east/b: 10.0.0.2=h"},
		"those that are not ready are no capacity":             {[]string{"10.0.0.1 ready", "10.0.0.2 unready"}, "checkout.shop:80 east/a: 10.0.0.1=h"},
		"a Service none of whose Pods was ever ready is empty": {[]string{"10.0.0.1 unready", "10.0.0.2 unready"}, "checkout.shop:80"},
	} {
		t.Run(name, func(t *testing.T) {
			w := world()
			w.SetSlice(slice(t, "s1", c.endpoints...))
			want(t, take(w, 0), c.want)
		})
	}
}

func TestSlicesAreJoined(t *testing.T) {
	w := world()
	w.SetSlice(slice(t, "s1", "10.0.0.1 ready", "10.0.0.2 ready"))
	w.SetSlice(slice(t, "s2", "10.0.0.3 ready"))
	want(t, take(w, 0), "checkout.shop:80 east/a: 10.0.0.1=h 10.0.0.2=h 10.0.0.3=h")
	// An endpoint moves: it stands in both slices, and the newer one is right.
	moved := slice(t, "s2", "10.0.0.3 ready", "10.0.0.2 draining")
	moved.Version = 2
	w.SetSlice(moved)
	want(t, take(w, 0), "checkout.shop:80 east/a: 10.0.0.1=h 10.0.0.2=d 10.0.0.3=h")
	w.SetSlice(slice(t, "s1", "10.0.0.1 ready"))
	want(t, take(w, 0), "checkout.shop:80 east/a: 10.0.0.1=h 10.0.0.2=d 10.0.0.3=h")
	w.DeleteSlice(table.Key{Namespace: "shop", Name: "s2"})
	want(t, take(w, 0), "checkout.shop:80 east/a: 10.0.0.1=h")
	// A slice that gets another owner leaves the first.
	other := slice(t, "s1", "10.0.0.1 ready")
	other.Service = "cart"
	w.SetSlice(other)
	want(t, take(w, 0), "checkout.shop:80")
}

func TestDualStackIsOneEndpoint(t *testing.T) {
	six := slice(t, "s6", "fd00::1 ready uid=p1", "fd00::2 ready uid=p2")
	six.Family = table.IPv6
	for name, c := range map[string]struct {
		family table.Family
		want   string
	}{
		"the first family is IPv4": {table.IPv4, "checkout.shop:80 east/a: 10.0.0.1=h 10.0.0.2=h"},
		"the first family is IPv6": {table.IPv6, "checkout.shop:80 east/a: [fd00::1]=h [fd00::2]=h"},
		"no family is named":       {table.AnyFamily, "checkout.shop:80 east/a: 10.0.0.1=h 10.0.0.2=h"},
	} {
		t.Run(name, func(t *testing.T) {
			w := world()
			w.SetService(table.Service{Key: checkout, Family: c.family, Ports: []table.Port{{Name: "grpc", Number: 80}}})
			w.SetSlice(slice(t, "s4", "10.0.0.1 ready uid=p1", "10.0.0.2 ready uid=p2"))
			w.SetSlice(six)
			want(t, take(w, 0), c.want)
		})
	}
}

func TestPorts(t *testing.T) {
	w := world()
	w.SetService(table.Service{Key: checkout, Family: table.IPv4, Ports: []table.Port{{Name: "grpc", Number: 80}, {Name: "admin", Number: 9090}}})
	old, fresh := slice(t, "s1", "10.0.0.1 ready"), slice(t, "s2", "10.0.0.2 ready")
	fresh.Ports = []table.Port{{Name: "grpc", Number: 8081}, {Name: "admin", Number: 9000}} // the next version of the Pods
	w.SetSlice(old)
	w.SetSlice(fresh)
	changed, _ := w.Take(start)
	got := []string{text(&changed[0]), text(&changed[1]), changed[0].Reason, changed[1].Reason}
	expected := []string{
		"checkout.shop:80 east/a: 10.0.0.1=h 10.0.0.2:8081=h", "checkout.shop:9090 east/a: 10.0.0.2:9000=h",
		"", "1 endpoint has no port admin: name it in targetPort of the Service as the Pods do",
	}
	if !slices.Equal(got, expected) {
		t.Errorf("got  %q\nwant %q", got, expected)
	}
	w.SetService(table.Service{Key: checkout, Family: table.IPv4, Ports: []table.Port{{Name: "grpc", Number: 81}}})
	want(t, take(w, 0), "checkout.shop:81 east/a: 10.0.0.1=h 10.0.0.2:8081=h\nno checkout.shop:80\nno checkout.shop:9090")
}

func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		places   table.Places
		endpoint string
		want     string
		reason   string
	}{
		"the zone of the slice, the region of the Node": {table.Places{}, "10.0.0.1 ready zone=a node=n1", " east/a: 10.0.0.1=h", ""},
		"the zone of the Node":                          {table.Places{}, "10.0.0.1 ready zone= node=n2", " east/b: 10.0.0.1=h", ""},
		"the region of another Node of the zone":        {table.Places{}, "10.0.0.1 ready zone=b node=new", " east/b: 10.0.0.1=h", ""},
		"the table where no Node tells":                 {table.Places{Regions: map[string]string{"c": "west"}}, "10.0.0.1 ready zone=c", " west/c: 10.0.0.1=h", ""},
		"the Node before the table":                     {table.Places{Regions: map[string]string{"a": "west"}}, "10.0.0.1 ready zone=a node=n1", " east/a: 10.0.0.1=h", ""},
		"the table before other Nodes":                  {table.Places{Regions: map[string]string{"a": "west"}}, "10.0.0.1 ready zone=a", " west/a: 10.0.0.1=h", ""},
		"the region by default":                         {table.Places{Default: isobar.MustLocality("south/z")}, "10.0.0.1 ready zone=c", " south/c: 10.0.0.1=h", ""},
		"the place by default":                          {table.Places{Default: isobar.MustLocality("south/z")}, "10.0.0.1 ready zone=", " south/z: 10.0.0.1=h", ""},
		"a region that is not known": {
			table.Places{}, "10.0.0.1 ready zone=c node=n9", "",
			"endpoint 10.0.0.1 is in zone c, whose region is not known: label Node n9 with topology.kubernetes.io/region, or add the zone to regions",
		},
		"a zone that is not known": {
			table.Places{}, "10.0.0.1 ready zone= node=n9", "",
			"endpoint 10.0.0.1 has no zone: label Node n9 with topology.kubernetes.io/zone, or set default_locality",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := world()
			w.SetPlaces(c.places)
			w.SetSlice(slice(t, "s1", c.endpoint))
			changed, _ := w.Take(start)
			want(t, text(&changed[0]), "checkout.shop:80"+c.want)
			want(t, changed[0].Reason, c.reason)
			if left := changed[0].Counts.LeftOut; (left == 1) != (c.reason != "") {
				t.Errorf("%d left out", left)
			}
		})
	}
}

func TestNodesChange(t *testing.T) {
	w := world()
	w.SetSlice(slice(t, "s1", "10.0.0.1 ready zone=c node=n3"))
	want(t, take(w, 0), "checkout.shop:80")
	w.SetNode(table.Node{Name: "n3", Region: "west", Zone: "c"})
	want(t, take(w, 0), "checkout.shop:80 west/c: 10.0.0.1=h")
	w.SetNode(table.Node{Name: "n3", Region: "west", Zone: "c"})
	want(t, take(w, 0), "")
	w.ReplaceNodes(nil) // its endpoints stay where they are while slices list them
	want(t, take(w, 0), "checkout.shop:80 west/c: 10.0.0.1=h")
}

func TestWhatIsGoneIsRemovedAtOnce(t *testing.T) {
	w := world()
	w.SetSlice(slice(t, "s1", "10.0.0.1 ready", "10.0.0.2 ready"))
	take(w, 0)
	w.ReplaceSlices("other", nil) // another namespace is listed again
	want(t, take(w, 0), "")
	w.ReplaceSlices("", []table.Slice{slice(t, "s9", "10.0.0.2 ready")})
	want(t, take(w, 0), "checkout.shop:80 east/a: 10.0.0.2=h")
	w.ReplaceSlices("shop", nil)
	want(t, take(w, 0), "checkout.shop:80")
	w.ReplaceServices("shop", nil)
	want(t, take(w, 0), "no checkout.shop:80")
	w.SetSlice(slice(t, "s1", "10.0.0.1 ready")) // of a Service that is not there, or not selected
	want(t, take(w, 0), "")
	w.SetService(table.Service{Key: checkout, Family: table.IPv4, Ports: []table.Port{{Name: "grpc", Number: 80}}})
	want(t, take(w, 0), "checkout.shop:80 east/a: 10.0.0.1=h")
}

func TestAnAddressThatTwoPodsHave(t *testing.T) {
	w := world()
	w.SetSlice(slice(t, "s1", "10.0.0.1 draining uid=old"))
	w.SetSlice(slice(t, "s2", "10.0.0.1 ready uid=new"))
	changed, _ := w.Take(start)
	want(t, text(&changed[0]), "checkout.shop:80 east/a: 10.0.0.1=h")
	want(t, changed[0].Reason, "two Pods have the address 10.0.0.1:8080")
}

// TestMassLoss plays what Pods do, a step at a time: the seconds, the slice, and
// what is served.
func TestMassLoss(t *testing.T) {
	type step struct {
		at        int
		endpoints string // of 10.0.0.1 to 4: r ready, u not ready, d draining, e not ready and ending, - gone
		want      string // in the same way: h, u, d, - not served
	}
	for name, steps := range map[string][]step{
		"most stop being ready at once":    {{0, "rrrr", "hhhh"}, {1, "ruuu", "huuu"}, {100, "ruuu", "huuu"}},
		"all do":                           {{0, "rrrr", "hhhh"}, {1, "uuuu", "uuuu"}},
		"half are no mass":                 {{0, "rrrr", "hhhh"}, {1, "rruu", "hh--"}},
		"within half a minute":             {{0, "rrrr", "hhhh"}, {1, "rruu", "hh--"}, {29, "ruuu", "huuu"}},
		"not over minutes":                 {{0, "rrrr", "hhhh"}, {1, "rrru", "hhh-"}, {40, "rruu", "hh--"}, {80, "ruuu", "h---"}},
		"not while some end":               {{0, "rrrr", "hhhh"}, {1, "reuu", "h---"}},
		"not while some go":                {{0, "rrrr", "hhhh"}, {1, "r-uu", "h---"}},
		"not shortly after some went":      {{0, "rrrr", "hhhh"}, {1, "rrr-", "hhh-"}, {20, "ruu-", "h---"}},
		"those that end or go are dropped": {{0, "rrrr", "hhhh"}, {1, "uuuu", "uuuu"}, {2, "-uue", "-uu-"}},
		"those that end serve meanwhile":   {{0, "rrrr", "hhhh"}, {1, "uuuu", "uuuu"}, {2, "uuud", "uuuh"}},
		"until half are ready again":       {{0, "rrrr", "hhhh"}, {1, "uuuu", "uuuu"}, {60, "ruuu", "huuu"}, {61, "rruu", "hh--"}},
		"one more of those that are left":  {{0, "rrrr", "hhhh"}, {1, "ruuu", "huuu"}, {90, "uuuu", "uuuu"}},
		"Pods that start were never ready": {{0, "ruuu", "h---"}, {1, "ruuu", "h---"}},
		"the last one of one":              {{0, "r---", "h---"}, {1, "u---", "u---"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := world()
			for _, s := range steps {
				var endpoints []string
				for i, letter := range s.endpoints {
					state := map[rune]string{'r': " ready", 'u': " unready", 'd': " draining", 'e': " unready ending"}[letter]
					if letter != '-' {
						endpoints = append(endpoints, fmt.Sprintf("10.0.0.%d%s", i+1, state))
					}
				}
				w.SetSlice(slice(t, "s1", endpoints...))
				got := []byte("----")
				for word := range strings.FieldsSeq(take(w, time.Duration(s.at)*time.Second)) {
					if address, status, found := strings.Cut(word, "="); found {
						got[address[len(address)-1]-'1'] = status[0]
					}
				}
				if string(got) != s.want {
					t.Errorf("after %d s with %s: got %s, want %s", s.at, s.endpoints, got, s.want)
				}
			}
		})
	}
}

func TestCountsAndBadAddresses(t *testing.T) {
	w := world()
	s := slice(t, "s1", "10.0.0.1 ready", "10.0.0.2 draining", "10.0.0.3 unready", "224.0.0.1 ready", "0.0.0.0 ready")
	s.Endpoints = append(s.Endpoints, table.Endpoint{State: table.Ready, Zone: "a"})
	w.SetSlice(s)
	names := slice(t, "s2")
	names.Family, names.Endpoints = table.NoIPFamily, make([]table.Endpoint, 2)
	w.SetSlice(names)
	changed, _ := w.Take(start)
	if got, expected := changed[0].Counts, (table.Counts{Ready: 1, Draining: 1, NotReady: 1, LeftOut: 5}); got != expected {
		t.Errorf("got %+v, want %+v", got, expected)
	}
}

// TestOrderDoesNotCount: whatever order objects come in, the same comes out.
func TestOrderDoesNotCount(t *testing.T) {
	steps := []func(*table.Table){
		func(w *table.Table) { w.SetNode(table.Node{Name: "n1", Region: "east", Zone: "a"}) },
		func(w *table.Table) {
			w.SetService(table.Service{Key: checkout, Family: table.IPv4, Ports: []table.Port{{Name: "grpc", Number: 80}}})
		},
		func(w *table.Table) { w.SetSlice(slice(t, "s1", "10.0.0.1 ready", "10.0.0.2 draining")) },
		func(w *table.Table) { w.SetSlice(slice(t, "s2", "10.0.0.3 ready zone= node=n1")) },
	}
	for i := range 24 {
		order := slices.Clone(steps)
		for j, n := 0, i; j < len(order)-1; j++ {
			k := j + n%(len(order)-j)
			n /= len(order) - j
			order[j], order[k] = order[k], order[j]
		}
		w := table.New(table.Places{})
		for _, step := range order {
			step(w)
			w.Take(start)
		}
		w.Touch()
		want(t, take(w, 0), "checkout.shop:80 east/a: 10.0.0.1=h 10.0.0.2=d 10.0.0.3=h")
	}
}
