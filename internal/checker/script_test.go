package checker_test

import (
	"context"
	"errors"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/isobar-xds/isobar/internal/checker"
)

// script is a prober whose outcomes a test decides, by address.
type script struct {
	mu     sync.Mutex
	says   map[string]checker.Outcome
	probes map[string][]time.Time
	open   int
	most   int // probes at once
	now    int
	takes  time.Duration
}

func newScript() *script {
	return &script{says: map[string]checker.Outcome{}, probes: map[string][]time.Time{}}
}

func (s *script) use(o *checker.Options) {
	o.NewProber = func(t checker.Target, _ *corev3.HealthCheck) (checker.Prober, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open++
		return &scripted{script: s, address: t.Address}, nil
	}
}

func (s *script) set(address string, o checker.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says[address] = o
}

func (s *script) times(address string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.probes[address]...)
}

func (s *script) count() (probers, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open, s.most
}

type scripted struct {
	script  *script
	address string
}

func (p *scripted) Probe(ctx context.Context) (checker.Outcome, error) {
	s := p.script
	s.mu.Lock()
	out := s.says[p.address]
	s.probes[p.address] = append(s.probes[p.address], time.Now())
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	if out == checker.TimedOut {
		<-ctx.Done()
		return out, ctx.Err()
	}
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
		}
	}
	if out != checker.Passed {
		return out, errors.New("as the script says")
	}
	return out, nil
}

func (p *scripted) Close() {
	p.script.mu.Lock()
	defer p.script.mu.Unlock()
	p.script.open--
}
