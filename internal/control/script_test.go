package control_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestScripts plays the scripts in testdata/script, which are the specification of the loop:
// what clients report, what operators do, and what clients are told then. Clients do what they
// are told: they split their requests by the plan in force. A tick takes 1 s, and clients
// report every second. The lines of a scenario:
//
//	service shop full us-east/a=1000 us-east/b=?    a service, its mode, and its localities with what they declare
//	                                  (requests/s; ? = nothing); each has two endpoints, which are named
//	                                  us-east/a#1 and us-east/a#2. "shed=50" has clients drop up to 50%
//	without shop                      it is taken out of the configuration
//	clients us-east/a shop 150        from now on, clients of us-east/a send 150 requests/s to shop
//	clients us-east/a silent          they stay connected and report nothing (until "clients us-east/a report")
//	clients us-east/a gone            their streams have ended
//	us-east/b fails 100%              so much of what is sent there fails (0%: works again)
//	us-east/a#1 is unhealthy          an operator marks an endpoint of all services (or healthy)
//	3s pass
//	shop from us-east/a: us-east/a 67% us-east/b 33%    what its clients are told, within a point; or "nothing"
//	shop drops 20%                    what clients of it are told to drop, within a point
//	shop held: text                   a part of why its weights are held; "shop free" where they are not
//	plans 3                           so many were published since the last such line ("plans": begin to count)
//	pause shop; resume shop           what an operator does; "refused: text" after it, if it is
//	mark NAME                         remembers the version in force
//	rollback shop NAME                returns to it
//	restart                           the server stops, and another one takes up what it saved
//	disk full                         nothing can be saved; "works" ends it
func TestScripts(t *testing.T) {
	testhelp.Scripts(t, func(t *testing.T, lines []testhelp.ScriptLine) {
		t.Helper()
		bubble.Test(t, func(t *testing.T) {
			s := &script{world: newWorld(), Script: testhelp.Script{T: t, At: lines[0].At}, marks: map[string]uint64{}}
			for _, line := range lines {
				s.At = line.At
				s.line(line.Text)
				synctest.Wait()
			}
			s.stop()
		})
	})
}

// script is one scenario.
type script struct {
	*world
	testhelp.Script

	loop  *control.Loop
	stop  func()
	count uint64 // the version at which the script began to count
	marks map[string]uint64
}

func (s *script) start() {
	s.T.Helper()
	if len(s.saved) > 0 {
		s.stored = &s.saved[len(s.saved)-1]
	}
	s.loop, s.stop = start(s.T, s.parts, func(o *control.Options) { o.Topology, o.Reports, o.Clients = s.world, s.world, s.world })
	s.obey(s.loop)
}

func (s *script) line(text string) {
	s.T.Helper()
	words := strings.Fields(text)
	if s.loop == nil && words[0] != "service" {
		s.start()
	}
	switch subject, told, _ := strings.Cut(text, ": "); {
	case words[0] == "service":
		s.configure(s.service(words[1:]))
	case words[0] == "without":
		s.remove(words[1])
	case words[0] == "clients":
		s.clients(words[1:])
	case words[0] == "plans":
		s.plans(words[1:])
	case words[0] == "mark":
		s.marks[words[1]] = s.loop.Current().Version
	case words[0] == "restart":
		s.stop()
		s.start()
	case words[0] == "disk":
		s.disk(words[1] == "works")
	case slices.Contains([]string{"pause", "resume", "rollback"}, words[0]):
		s.operate(text)
	case len(words) == 2 && words[1] == "pass":
		pass(s.Duration(words[0]))
	case len(words) == 3 && words[1] == "fails":
		s.fail(isobar.MustLocality(words[0]), s.percent(words[2]))
	case len(words) == 3 && words[1] == "is":
		s.set(words[0], words[2])
	case len(words) == 3 && words[1] == "drops":
		s.drops(words[0], s.percent(words[2]))
	case len(words) > 3 && words[1] == "from":
		s.told(words[0], isobar.MustLocality(strings.TrimSuffix(words[2], ":")), told)
	case len(words) > 1 && strings.HasPrefix(words[1], "held"):
		s.held(strings.Fields(subject)[0], told)
	case len(words) == 2 && words[1] == "free":
		s.held(words[0], "")
	default:
		s.Failf("unknown: %q", text)
	}
}

// percent reads 20% as 0.2.
func (s *script) percent(word string) float64 {
	s.T.Helper()
	v, err := strconv.ParseFloat(strings.TrimSuffix(word, "%"), 64)
	if err != nil {
		s.Failf("%v", err)
	}
	return v / 100
}

// service reads "NAME MODE LOCALITY=RATE... shed=PERCENT".
func (s *script) service(words []string) isobar.Service {
	s.T.Helper()
	mode, err := isobar.ParseMode(words[1])
	if err != nil {
		s.Failf("%v", err)
	}
	svc := isobar.Service{Name: words[0], Mode: mode}
	for _, w := range words[2:] {
		name, value, _ := strings.Cut(w, "=")
		if name == "shed" {
			svc.MaxShed = s.percent(value)
			continue
		}
		sl := isobar.ServiceLocality{Locality: isobar.MustLocality(name)}
		if value != "?" {
			sl.MaxRate = float64(s.Number(value))
			sl.Concurrency = sl.MaxRate / 50 // a request takes 20 ms
		}
		for e := range 2 {
			sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: address(name, e+1)})
		}
		svc.Localities = append(svc.Localities, sl)
	}
	return svc
}

// address of the endpoint with a number, from 1, of a locality.
func address(locality string, number int) string {
	sum := 0
	for _, c := range locality {
		sum = (sum*31 + int(c)) % 65_000
	}
	return fmt.Sprintf("10.%d.%d.%d:80", sum/250, sum%250, number)
}

func (s *script) clients(words []string) {
	s.T.Helper()
	source := isobar.MustLocality(words[0])
	switch words[1] {
	case "silent", "report", "gone":
		s.behave(source, words[1])
	default:
		s.send(source, words[1], float64(s.Number(words[2])))
	}
}

func (s *script) plans(words []string) {
	s.T.Helper()
	now := s.loop.Current().Version
	if len(words) > 0 && now-s.count != uint64(s.Number(words[0])) {
		s.Failf("%d plans were published, want %s", now-s.count, words[0])
	}
	s.count = now
}

// set marks an endpoint, such as us-east/a#1, of all services.
func (s *script) set(endpoint, status string) {
	s.T.Helper()
	locality, number, _ := strings.Cut(endpoint, "#")
	st, err := isobar.ParseHealth(status)
	if err != nil {
		s.Failf("%v", err)
	}
	s.override(address(locality, s.Number(number)), st)
}

// operate does what an operator does, and compares the answer.
func (s *script) operate(text string) {
	s.T.Helper()
	text, refused, _ := strings.Cut(text, "; refused: ")
	words := strings.Fields(text)
	ctx, pause := s.T.Context(), plan.Pause{Service: words[1], Who: "ann"}
	var err error
	switch words[0] {
	case "pause":
		_, _, err = s.loop.Pause(ctx, pause)
	case "resume":
		_, _, _, err = s.loop.Resume(ctx, pause)
	case "rollback":
		_, _, _, err = s.loop.Rollback(ctx, s.marks[words[2]], pause, false)
	}
	switch {
	case refused == "" && err != nil:
		s.Failf("refused: %v", err)
	case refused != "" && (err == nil || !strings.Contains(err.Error(), refused)):
		s.Failf("%v, want it refused: %s", err, refused)
	}
}

// told compares what the clients of a source are told with "LOCALITY PERCENT ...".
func (s *script) told(service string, source isobar.Locality, want string) {
	s.T.Helper()
	a := s.loop.Current().Assignment(service, source)
	var got []string
	if a != nil && len(a.Priorities) > 0 {
		for _, w := range a.Priorities[0] {
			got = append(got, fmt.Sprintf("%s %.0f%%", w.Locality, 100*a.Share(w.Locality)))
		}
	}
	words, all := strings.Fields(strings.TrimPrefix(want, "nothing")), 0.0
	for i := 0; i+1 < len(words); i += 2 {
		part := s.percent(words[i+1])
		all += part
		if math.Abs(a.Share(isobar.MustLocality(words[i]))-part) > 0.01 {
			s.Failf("the clients are told %q, want %q", strings.Join(got, " "), want)
		}
	}
	if len(words) == 0 && len(got) > 0 || len(words) > 0 && math.Abs(all-1) > 0.015 {
		s.Failf("the clients are told %q, want %q", strings.Join(got, " "), want)
	}
}

func (s *script) drops(service string, want float64) {
	s.T.Helper()
	svc, ok := s.loop.Current().Service(service)
	if !ok || math.Abs(svc.Result.Drop-want) > 0.01 {
		s.Failf("clients drop %.0f%%, want %.0f%%", 100*svc.Result.Drop, 100*want)
	}
}

// held compares why the weights of a service are held, by missing inputs or an operator.
func (s *script) held(service, why string) {
	s.T.Helper()
	svc, ok := s.loop.Current().Service(service)
	if !ok {
		s.Failf("there is no service %s", service)
	}
	got := svc.Hold
	if svc.Paused != nil {
		got = svc.Paused.String()
	}
	if !strings.Contains(got, why) || why == "" && got != "" {
		s.Failf("it is held because of %q, want %q", got, why)
	}
}

// world is what surrounds the loop: services, clients and endpoints. It stands in for the
// packages source, lrs and xds.
type world struct {
	*parts

	mu      sync.Mutex
	loop    *control.Loop
	senders map[isobar.Locality]*sender
	failing map[isobar.Locality]float64
	marked  health.Table
	streams load.StreamID
}

// sender is the clients of one locality: three of them, each with a third of the requests.
type sender struct {
	rates  map[string]float64 // by service, requests/s
	opened time.Time
	first  load.StreamID // of its three streams
	silent bool
	closed time.Time
}

const clientsEach = 3

func newWorld() *world {
	return &world{parts: newParts(), senders: map[isobar.Locality]*sender{}, failing: map[isobar.Locality]float64{}}
}

// obey has the clients do what the plans of a loop say, over new streams.
func (w *world) obey(l *control.Loop) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loop = l
	for _, c := range w.senders {
		w.connect(c)
	}
}

func (w *world) connect(c *sender) {
	c.opened, c.first = time.Now(), w.streams+1
	w.streams += clientsEach
}

func (w *world) State() (*isobar.Topology, health.Table) {
	topology, _ := w.parts.State()
	w.mu.Lock()
	defer w.mu.Unlock()
	return topology, w.marked
}

// configure adds a service, or replaces the one with its name.
func (w *world) configure(svc isobar.Service) {
	services := append(w.without(svc.Name), svc)
	slices.SortFunc(services, func(a, b isobar.Service) int { return strings.Compare(a.Name, b.Name) })
	w.serve(services...)
	if w.loop == nil {
		<-w.changed // nobody listens yet, and the loop reads it at its start
	}
}

func (w *world) remove(name string) { w.serve(w.without(name)...) }

func (w *world) without(name string) (out []isobar.Service) {
	topology, _ := w.parts.State()
	for i := range topology.Services {
		if topology.Services[i].Name != name {
			out = append(out, topology.Services[i])
		}
	}
	return out
}

func (w *world) override(address string, status isobar.HealthStatus) {
	w.mu.Lock()
	topology, _ := w.parts.State()
	for i := range topology.Services {
		w.marked = w.marked.With(health.Override{Key: health.Key{Service: topology.Services[i].Name, Address: address}, Status: status})
	}
	w.mu.Unlock()
	w.change()
}

func (w *world) fail(at isobar.Locality, part float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing[at] = part
}

func (w *world) send(source isobar.Locality, service string, rate float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.senders[source]
	if c == nil {
		c = &sender{rates: map[string]float64{}}
		w.connect(c)
		w.senders[source] = c
	}
	c.rates[service] = rate
}

func (w *world) behave(source isobar.Locality, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.senders[source]
	c.silent = how == "silent"
	if how == "gone" {
		c.closed = time.Now()
	}
}

func (w *world) disk(works bool) {
	w.parts.mu.Lock()
	defer w.parts.mu.Unlock()
	w.saveErr = nil
	if !works {
		w.saveErr = context.DeadlineExceeded
	}
}

func (w *world) Subscriptions() (out []load.Subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for source, c := range w.senders {
		if !c.closed.IsZero() {
			continue
		}
		for service := range c.rates {
			out = append(out, load.Subscription{Source: source, Service: service, Streams: clientsEach, Acked: clientsEach, AckedAt: c.opened})
		}
	}
	slices.SortFunc(out, func(a, b load.Subscription) int {
		return strings.Compare(a.Service+" "+a.Source.String(), b.Service+" "+b.Source.String())
	})
	return out
}

// Collect reports what the clients sent since the last tick, a second ago.
func (w *world) Collect(now time.Time) (out []load.StreamWindow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, source := range slices.SortedFunc(maps.Keys(w.senders), isobar.Locality.Compare) {
		c := w.senders[source]
		for n := range clientsEach {
			window := load.StreamWindow{
				Stream: c.first + load.StreamID(n), Opened: c.opened, Closed: c.closed,
				Node: load.Node{ID: fmt.Sprintf("%s-%d", source, n), Cluster: "front", Locality: source, Agent: load.AgentEnvoy},
			}
			if !c.silent && c.closed.IsZero() {
				window.Reports = []load.Report{{Arrived: now, Services: w.report(c, source)}}
			}
			out = append(out, window)
		}
		if !c.closed.IsZero() {
			delete(w.senders, source)
		}
	}
	return out
}

func (w *world) report(c *sender, source isobar.Locality) (out []load.ServiceReport) {
	for _, service := range slices.Sorted(maps.Keys(c.rates)) {
		a := w.loop.Current().Assignment(service, source)
		if a == nil || len(a.Priorities) == 0 {
			continue
		}
		rate := c.rates[service] / clientsEach
		r := load.ServiceReport{Service: service, Interval: time.Second, Dropped: uint64(math.Round(rate * a.Drop))}
		if r.Dropped > 0 {
			r.DroppedBy = []load.DropCount{{Category: isobar.DropCategory, Count: r.Dropped}}
		}
		for _, lw := range a.Priorities[0] {
			at := lw.Locality
			issued := uint64(math.Round(rate * (1 - a.Drop) * a.Share(at)))
			failed := uint64(math.Round(float64(issued) * w.failing[at]))
			r.Localities = append(r.Localities, load.LocalityReport{Locality: &at, Issued: issued, HasIssued: true, Succeeded: issued - failed, Errors: failed})
		}
		out = append(out, r)
	}
	return out
}
