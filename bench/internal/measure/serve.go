package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/bench/internal/process"
)

// Serve is the scenario of Push with `isobar serve` itself: changes go by its
// admin API, and what it uses is what the system reports on its process. The other
// servers are measured in the same way.
type Serve struct {
	Isobar        *string // path of the program
	Profiles      *string // directory for profiles of it; "" = none are taken
	Endpoints     int     // of a cluster in a locality: fleet.Endpoints or fleet.Few
	Streams       int
	PerConnection int
	Subscriptions int // of each stream
	Changes       int // in a round
	Servers       []string
}

// spacing is the least time between two changes: the server holds off plans that
// only carry a change over for 100 ms since the one before.
const spacing = 150 * time.Millisecond

// Name is the scenario's name in results.
func (s *Serve) Name() string {
	return fmt.Sprintf("Serve/endpoints=%d/streams=%d/subs=%d/perconn=%d", fleet.Localities*s.Endpoints, s.Streams, s.Subscriptions, s.PerConnection)
}

// subject is a server process, seen from outside.
type subject interface {
	address() string
	pid() int
	change(ctx context.Context, cluster int) error
	stop() error
}

// watched is a server with its streams.
type watched struct {
	*audience
	subject

	kind  string
	alone process.Usage // before a client connects
	sent  time.Time     // the change before
}

// Run measures all servers, in turn, for a number of rounds.
func (s *Serve) Run(ctx context.Context, rounds int, report func(Result)) error {
	var all []*watched
	defer func() {
		for _, w := range all {
			_ = w.stop()
			w.close()
		}
	}()
	for _, kind := range s.Servers {
		w, err := s.start(ctx, kind)
		if w != nil {
			all = append(all, w)
		}
		if err == nil {
			err = s.connect(ctx, w, report)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	profiled := s.profile(ctx, all)
	defer profiled.Wait()
	for round := range rounds + 1 {
		for _, w := range all {
			results, err := s.round(ctx, w, round)
			if err != nil {
				return fmt.Errorf("%s: %w", w.kind, err)
			}
			for _, r := range results {
				if round > 0 { // everything warms up in the first
					report(r)
				}
			}
		}
	}
	for _, w := range all {
		if err := s.idle(w, "pushed", report); err != nil {
			return fmt.Errorf("%s: %w", w.kind, err)
		}
	}
	return nil
}

// profile writes a profile of the processor over the first rounds, and of what
// Isobar's heap holds then.
func (s *Serve) profile(ctx context.Context, all []*watched) *sync.WaitGroup {
	var done sync.WaitGroup
	for _, w := range all {
		isobar, ok := w.subject.(*served)
		if !ok || *s.Profiles == "" {
			continue
		}
		done.Go(func() {
			for file, path := range map[string]string{
				"serve.cpu": "/debug/pprof/profile?seconds=20", "serve.allocs": "/debug/pprof/allocs?seconds=20", "serve.heap": "/debug/pprof/heap?gc=1",
			} {
				done.Go(func() {
					data, err := isobar.process.Get(ctx, path)
					if err == nil {
						err = os.WriteFile(filepath.Join(*s.Profiles, file), data, 0o600)
					}
					if err != nil {
						_, _ = fmt.Fprintln(os.Stderr, err)
					}
				})
			}
		})
	}
	return &done
}

func (s *Serve) start(ctx context.Context, kind string) (*watched, error) {
	w := &watched{kind: kind, audience: newAudience(s.Streams)}
	if kind == "isobar" {
		p, err := startServed(ctx, *s.Isobar, s.Subscriptions, s.Endpoints, "")
		if err != nil {
			return nil, err
		}
		w.subject = p
	} else {
		if s.Endpoints == fleet.Few {
			kind += "-small"
		}
		p, err := process.Start(ctx, kind)
		if err != nil {
			return nil, err
		}
		w.subject = other{p}
	}
	var err error
	w.alone, err = process.Quiet(w.pid())
	return w, err
}

// connect reports how long it took until all streams had everything, and what
// they take then.
func (s *Serve) connect(ctx context.Context, w *watched, report func(Result)) error {
	begun := time.Now()
	if err := w.connect(ctx, w.address(), s.PerConnection, fleet.Names(s.Subscriptions), false); err != nil {
		return err
	}
	took := w.atLast.Sub(begun)
	u, err := process.Quiet(w.pid())
	if err != nil {
		return err
	}
	report(Result{Name: "Sync" + s.suffix(w), N: int64(s.Streams), Values: []Value{
		{milliseconds(took), "last-ms"},
		{float64(u.CPU-w.alone.CPU) / float64(s.Streams), "cpu-ns/stream"},
		{float64(w.size.Load()), "B/response"},
	}})
	return s.idle(w, "connected", report)
}

func (s *Serve) suffix(w *watched) string { return s.Name() + "/server=" + w.kind }

// idle reports what is resident for a stream.
func (s *Serve) idle(w *watched, after string, report func(Result)) error {
	now, err := process.Quiet(w.pid())
	report(Result{Name: "Idle" + s.Name() + "/after=" + after + "/server=" + w.kind, N: int64(s.Streams), Values: []Value{
		{float64(now.RSS-w.alone.RSS) / float64(s.Streams), "RSS-B/stream"},
		{float64(now.RSS), "RSS-B"},
	}})
	return err
}

// round changes endpoints one after the other, each when all streams have the one
// before, the server rests and would not hold it off.
func (s *Serve) round(ctx context.Context, w *watched, round int) ([]Result, error) {
	before, err := process.Quiet(w.pid())
	if err != nil {
		return nil, err
	}
	var results []Result
	for i := range s.Changes {
		select {
		case <-time.After(time.Until(w.sent.Add(spacing))):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		w.sent = time.Now()
		if err := w.change(ctx, (round*s.Changes+i)%s.Subscriptions); err != nil {
			return nil, err
		}
		taken := time.Since(w.sent)
		if err := w.wait(); err != nil {
			return nil, err
		}
		results = append(results, Result{Name: "Reach" + s.suffix(w), N: 1, Values: []Value{
			{milliseconds(w.at99.Sub(w.sent)), "99%-ms"}, {milliseconds(w.atLast.Sub(w.sent)), "last-ms"}, {milliseconds(taken), "taken-ms"},
		}})
		if _, err := process.Quiet(w.pid()); err != nil {
			return nil, err
		}
	}
	after, err := process.Quiet(w.pid())
	n := int64(s.Streams) * int64(s.Changes)
	return append(results, Result{Name: s.suffix(w), N: n, Values: []Value{
		{float64(after.CPU-before.CPU) / float64(n), "cpu-ns/response"}, {float64(w.size.Load()), "B/response"},
	}}), err
}

// other is a server of this program.
type other struct{ process *process.Process }

func (o other) address() string { return o.process.Address }

func (o other) pid() int { return o.process.PID() }

func (o other) change(_ context.Context, cluster int) error { return o.process.Change(cluster) }

func (o other) stop() error { return o.process.Stop() }

// served is `isobar serve` with the services of the fleet.
type served struct {
	process   *process.Isobar
	endpoints int // of a cluster in a locality
	changes   int
}

// startServed starts it with so many services and further lines of configuration.
func startServed(ctx context.Context, binary string, services, endpoints int, config string) (*served, error) {
	p, err := process.StartIsobar(ctx, process.IsobarOptions{
		Binary: binary, Config: config, Env: []string{"GOMAXPROCS=1"}, Stdout: os.Stderr, Stderr: os.Stderr,
	})
	if err != nil {
		return nil, err
	}
	s := &served{process: p, endpoints: endpoints}
	all := make([]service, services)
	for i := range all {
		all[i] = s.service(i)
	}
	return s, s.put(ctx, "/v1/services", map[string]any{"services": all})
}

func (s *served) put(ctx context.Context, path string, what any) error {
	body, err := json.Marshal(what)
	if err != nil {
		return err
	}
	_, err = s.process.Do(ctx, http.MethodPut, path, body)
	return err
}

func (s *served) address() string { return s.process.XDS }

func (s *served) pid() int { return s.process.PID() }

func (s *served) change(ctx context.Context, cluster int) error {
	s.changes++
	return s.put(ctx, "/v1/services/"+fleet.Name(cluster), s.service(cluster))
}

func (s *served) stop() error { return s.process.Stop() }

// The body of a service, as the admin API takes it.
type (
	service struct {
		Name       string     `json:"name"`
		Localities []locality `json:"localities"`
	}
	locality struct {
		Locality  string     `json:"locality"`
		Endpoints []endpoint `json:"endpoints"`
	}
	endpoint struct {
		Address string  `json:"address"`
		MaxRate float64 `json:"max_rate"`
	}
)

// endpointRate is what each endpoint can serve, requests/s.
const endpointRate = 100

// service describes a cluster as it is after the changes until now.
func (s *served) service(cluster int) service {
	out := service{Name: fleet.Name(cluster)}
	for _, lw := range fleet.AssignmentsOf(s.endpoints, cluster, s.changes)[0].Priorities[0] {
		l := locality{Locality: lw.Locality.String()}
		for _, e := range lw.Endpoints {
			l.Endpoints = append(l.Endpoints, endpoint{e.Address, endpointRate})
		}
		out.Localities = append(out.Localities, l)
	}
	return out
}
