package dns_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/discovery/dns"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// zone is what a DNS server answers.
type zone struct {
	mu      sync.Mutex
	records []miekg.RR
	rcodes  map[string]int // of names, in place of an answer
	asked   map[string]int // questions, as "A name"
	answer  func(q, m *miekg.Msg)
	slow    string // about this name it answers a second later
}

// set replaces all records; each is a line of a zone file.
func (z *zone) set(t *testing.T, records ...string) {
	t.Helper()
	var list []miekg.RR
	for _, text := range records {
		rr, err := miekg.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, rr)
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.records = list
}

// fail lets questions about a name fail; miekg.RcodeSuccess takes it back.
func (z *zone) fail(name string, rcode int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.rcodes == nil {
		z.rcodes = map[string]int{}
	}
	z.rcodes[miekg.Fqdn(name)] = rcode
}

// questions tells how often a question, as "A name", was asked.
func (z *zone) questions(question string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[question]
}

func (z *zone) ServeDNS(w miekg.ResponseWriter, q *miekg.Msg) {
	m := new(miekg.Msg)
	m.SetReply(q)
	z.mu.Lock()
	slow := z.slow
	z.mu.Unlock()
	if slow == q.Question[0].Name {
		<-time.After(time.Second)
	}
	z.mu.Lock()
	if z.asked == nil {
		z.asked = map[string]int{}
	}
	name, kind := q.Question[0].Name, q.Question[0].Qtype
	z.asked[miekg.TypeToString[kind]+" "+strings.TrimSuffix(name, ".")]++
	z.fill(m, name, kind)
	if z.answer != nil {
		z.answer(q, m)
	}
	z.mu.Unlock()
	if _, tcp := w.RemoteAddr().(*net.TCPAddr); !tcp && w.RemoteAddr().Network() == "udp" {
		m.Truncate(1232)
	}
	_ = w.WriteMsg(m) // the client may have gone
}

// fill answers as a recursive resolver does: along aliases, and with the SOA
// where there is nothing.
func (z *zone) fill(m *miekg.Msg, name string, kind uint16) {
	m.RecursionAvailable = true
	exists := false
	for range 20 {
		if code := z.rcodes[name]; code != miekg.RcodeSuccess {
			m.Rcode = code
			return
		}
		next := ""
		for _, rr := range z.records {
			h := rr.Header()
			if h.Name != name {
				continue
			}
			exists = true
			if h.Rrtype == kind {
				m.Answer = append(m.Answer, rr)
			}
			if c, ok := rr.(*miekg.CNAME); ok {
				m.Answer = append(m.Answer, rr)
				next = c.Target
			}
		}
		if next == "" {
			break
		}
		name = next
	}
	if len(m.Answer) > 0 {
		return
	}
	if !exists {
		m.Rcode = miekg.RcodeNameError
	}
	soa, err := miekg.NewRR("example. 60 IN SOA ns.example. admin.example. 1 3600 600 86400 20")
	if err != nil {
		panic(err)
	}
	m.Ns = append(m.Ns, soa)
}

// world is a provider, the registry that it fills, and a DNS server, in virtual
// time.
type world struct {
	t        *testing.T
	zone     *zone
	listener *bufconn.Listener
	kept     *store.Memory
	metrics  *prometheus.Registry
	registry *discovery.Registry
	provider *dns.Provider
	stop     func()

	mu     sync.Mutex
	down   map[string]bool // servers that can't be reached
	dialed []string
	refuse string // the registry takes no service with this address; empty = it takes all
}

// validate refuses what setRefused names.
func (w *world) validate(services []isobar.Service) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range services {
		if _, _, found := services[i].Endpoint(w.refuse); found {
			return fmt.Errorf("%w: %s has %s", isobar.ErrInvalid, services[i].Name, w.refuse)
		}
	}
	return nil
}

// setRefused lets the registry refuse services with this address.
func (w *world) setRefused(address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = address
}

// inWorld runs a test with a zone and a configured provider.
func inWorld(t *testing.T, cfg *dns.Config, records []string, test func(w *world)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		w := &world{t: t, zone: &zone{}, kept: store.NewMemory(), down: map[string]bool{}, listener: bufconn.Listen(1 << 20)}
		w.zone.set(t, records...)
		server := &miekg.Server{Listener: w.listener, Handler: w.zone}
		done := make(chan error, 1)
		go func() { done <- server.ActivateAndServe() }()
		synctest.Wait()
		w.start(cfg)
		test(w)
		w.stop()
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (w *world) dial(ctx context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, address)
	down := w.down[address]
	w.mu.Unlock()
	if down {
		return nil, fmt.Errorf("dial %s: no route to host", address)
	}
	return w.listener.DialContext(ctx)
}

// asked returns the servers that were dialed since the last call.
func (w *world) asked() (addresses []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	addresses, w.dialed = w.dialed, nil
	return addresses
}

// setDown lets servers be away or not.
func (w *world) setDown(down bool, servers ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range servers {
		w.down[s] = down
	}
}

// start begins a process on the store.
func (w *world) start(cfg *dns.Config) {
	w.t.Helper()
	var err error
	if w.registry, err = discovery.Open(w.t.Context(), discovery.Options{Store: w.kept, Validate: w.validate, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		w.t.Fatal(err)
	}
	w.metrics = prometheus.NewRegistry()
	if w.provider, err = dns.Open(w.t.Context(), dns.Options{
		Registry: w.registry.Provider(isobar.OwnerDNS), Store: w.kept, Dial: w.dial, Registerer: w.metrics,
	}); err != nil {
		w.t.Fatal(err)
	}
	w.configure(cfg)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.provider.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	synctest.Wait()
}

// configure gives the provider a configuration, and the file these services.
func (w *world) configure(cfg *dns.Config, file ...isobar.Service) {
	w.t.Helper()
	if err := w.provider.Configure(cfg, func(listed, unknown []isobar.Service) error {
		_, err := w.registry.SetConfigured(file, []discovery.Provided{{Owner: isobar.OwnerDNS, Listed: listed, Awaited: unknown}}, nil, nil)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

// after lets time pass, until all that it brings has happened.
func (w *world) after(d time.Duration) *world {
	<-time.After(d)
	synctest.Wait()
	return w
}

// has checks the endpoints of a service: "locality: address*weight ..." by
// locality, with ";" between, or "none" where it is not listed.
func (w *world) has(service, want string) {
	w.t.Helper()
	if got := endpoints(w.registry, service); got != want {
		w.t.Errorf("%s has %q, want %q", service, got, want)
	}
}

func endpoints(r *discovery.Registry, service string) string {
	o, err := r.Get(service)
	if err != nil {
		return "none"
	}
	parts := make([]string, 0, len(o.Service.Localities))
	for i := range o.Service.Localities {
		l := &o.Service.Localities[i]
		text := l.Locality.String() + ":"
		for _, e := range l.Endpoints {
			text += " " + e.Address
			if e.Weight > 0 {
				text += fmt.Sprintf("*%d", e.Weight)
			}
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// lookup finds the state of a name of the first service.
func (w *world) lookup(name string) dns.LookupStatus {
	w.t.Helper()
	st, ok := w.provider.Status()
	if !ok {
		w.t.Fatal("no status")
	}
	for _, s := range st.Services {
		for _, l := range s.Lookups {
			if l.Name == name {
				return l
			}
		}
	}
	w.t.Fatalf("no lookup %s in %+v", name, st)
	return dns.LookupStatus{}
}

// isState checks the state of a name.
func (w *world) isState(name string, want dns.State) {
	w.t.Helper()
	if l := w.lookup(name); l.State != want {
		w.t.Errorf("%s is %s, want %s: %+v", name, l.State, want, l)
	}
}

func locality(text string) isobar.Locality {
	l, err := isobar.ParseLocality(text)
	if err != nil {
		panic(err)
	}
	return l
}

func host(name string) dns.Lookup { return dns.Lookup{Name: name, Port: 80} }
func srv(name string) dns.Lookup  { return dns.Lookup{Name: name, SRV: true} }

// svc is a service; sites alternate localities and their lookups.
func svc(name string, sites ...any) dns.Service {
	s := dns.Service{Settings: isobar.Service{Name: name}}
	for _, site := range sites {
		switch site := site.(type) {
		case string:
			s.Settings.Localities = append(s.Settings.Localities, isobar.ServiceLocality{Locality: locality(site), MaxRate: 100})
			s.Lookups = append(s.Lookups, nil)
		case dns.Lookup:
			s.Lookups[len(s.Lookups)-1] = append(s.Lookups[len(s.Lookups)-1], site)
		}
	}
	return s
}

const hold = 5 * time.Minute

// configuration asks two servers.
func configuration(services ...dns.Service) *dns.Config {
	return &dns.Config{
		Servers: []string{"10.0.0.2:53", "10.0.0.3:53"}, MinTTL: 5 * time.Second, Timeout: 2 * time.Second, EmptyHold: hold, Services: services,
	}
}

func newMemory(t *testing.T) *store.Memory {
	t.Helper()
	m := store.NewMemory()
	t.Cleanup(func() { _ = m.Close() })
	return m
}
