package solver_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/isobar-xds/isobar/solver"
)

// reader turns any bytes into numbers; it ends in zeros.
type reader struct{ data []byte }

func (r *reader) byte() byte {
	if len(r.data) == 0 {
		return 0
	}
	b := r.data[0]
	r.data = r.data[1:]
	return b
}

// float is a small number, a power of two of any size or raw bits.
func (r *reader) float() float64 {
	switch b := r.byte(); b % 4 {
	case 0:
		return float64(b / 4)
	case 1:
		return float64(r.byte()) / 16
	case 2:
		return math.Ldexp(1+float64(b)/256, int(int8(r.byte()))/2)
	}
	var raw [8]byte
	for i := range raw {
		raw[i] = r.byte()
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(raw[:]))
}

func (r *reader) service() solver.Service {
	var s solver.Service
	sources, localities, flags := int(r.byte()%6), int(r.byte()%6), r.byte()
	for range localities {
		s.Localities = append(s.Localities, solver.Locality{
			Capacity: r.float(), Servers: r.float(), Queues: r.float(), Ceiling: r.float() / 16, Unmanaged: r.float(),
		})
		if flags&1 != 0 {
			s.WarmPrices = append(s.WarmPrices, r.float())
		}
	}
	for range sources {
		s.Demand = append(s.Demand, r.float())
		s.Latency = append(s.Latency, r.row(localities))
		if flags&2 != 0 {
			s.Price = append(s.Price, r.row(localities))
		}
		if flags&4 != 0 {
			s.Previous = append(s.Previous, r.row(localities))
		}
		if flags&8 != 0 {
			row := make([]bool, localities)
			for l := range row {
				row[l] = r.byte()%4 != 0
			}
			s.Allowed = append(s.Allowed, row)
		}
	}
	if flags&16 != 0 {
		s.MaxShed = r.float() / 64
	}
	if flags&32 != 0 {
		for range sources {
			s.Variability = append(s.Variability, r.float()/64)
		}
	}
	return s
}

func (r *reader) row(n int) []float64 {
	row := make([]float64, n)
	for i := range row {
		row[i] = r.float()
	}
	return row
}

// call makes the first service call the second: rows of latencies follow.
func (r *reader) call(services []solver.Service) {
	services[0].Calls = []solver.Call{{Service: 1, PerRequest: r.float()}}
	s := &services[1]
	for range services[0].Localities {
		n := len(s.Localities)
		s.Latency = append(s.Latency, r.row(n))
		if s.Price != nil {
			s.Price = append(s.Price, r.row(n))
		}
		if s.Previous != nil {
			s.Previous = append(s.Previous, r.row(n))
		}
		if s.Allowed != nil {
			s.Allowed = append(s.Allowed, allTrue(n))
		}
	}
}

// FuzzCalls is FuzzSolve for a service that calls another.
func FuzzCalls(f *testing.F) {
	f.Add([]byte{2, 2, 0, 40, 16, 4, 0, 0, 80, 16, 4, 0, 0, 20, 4, 40, 24, 40, 4, 0, 2, 0, 40, 16, 4, 0, 0, 80, 16, 4, 0, 0, 8, 4, 8, 12, 16})
	f.Add([]byte{3, 2, 31, 40, 16, 4, 0, 4, 8, 80, 16, 4, 0, 0, 8, 20, 4, 40, 4, 4, 4, 4, 1, 1, 24, 40, 4, 4, 4, 4, 4, 0, 1, 8, 1, 3, 31, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := reader{data}
		p := solver.Problem{Services: []solver.Service{r.service(), r.service()}}
		r.call(p.Services)
		sol, err := solver.Solve(p)
		if err != nil {
			if !errors.Is(err, solver.ErrInvalid) {
				t.Fatalf("unexpected error %v", err)
			}
			return
		}
		if err := solver.CheckAll(p, sol); err != nil {
			t.Fatalf("%v\n%+v\n%+v", err, p, sol)
		}
		for _, v := range []float64{sol.Objective, sol.LowerBound, sol.Gap, sol.ExcessMS} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("not a number in %+v\n%+v", sol, p)
			}
		}
		if sol.LowerBound > sol.Objective {
			t.Fatalf("bound %v above objective %v", sol.LowerBound, sol.Objective)
		}
		for i := range sol.Services {
			for l, price := range sol.Services[i].Prices {
				if math.IsNaN(price) || math.IsInf(price, 0) {
					t.Fatalf("price %d of %d is %v\n%+v", l, i, price, p)
				}
			}
		}
	})
}

// FuzzSolve: any numbers give an error that says ErrInvalid, or an answer that
// keeps every constraint and is certified.
func FuzzSolve(f *testing.F) {
	f.Add([]byte{2, 2, 0, 40, 16, 4, 0, 0, 80, 16, 4, 0, 0, 20, 4, 40, 24, 40, 4})
	f.Add([]byte{3, 2, 31, 40, 16, 4, 0, 4, 8, 80, 16, 4, 0, 0, 8, 20, 4, 40, 4, 4, 4, 4, 1, 1, 24, 40, 4, 4, 4, 4, 4, 0, 1, 8})
	f.Add([]byte{2, 2, 32, 40, 16, 4, 0, 0, 80, 16, 4, 0, 0, 20, 4, 40, 24, 40, 4, 128, 64})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := reader{data}
		s := r.service()
		sol, err := solver.Solve(solver.Problem{Services: []solver.Service{s}})
		if err != nil {
			if !errors.Is(err, solver.ErrInvalid) {
				t.Fatalf("unexpected error %v", err)
			}
			return
		}
		if err := solver.Check(s, sol.Services[0]); err != nil {
			t.Fatalf("%v\n%+v\n%+v", err, s, sol.Services[0])
		}
		for _, v := range []float64{sol.Objective, sol.LowerBound, sol.Gap, sol.ExcessMS} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("not a number in %+v\n%+v", sol, s)
			}
		}
		if sol.LowerBound > sol.Objective {
			t.Fatalf("bound %v above objective %v", sol.LowerBound, sol.Objective)
		}
		for l, p := range sol.Services[0].Prices {
			if math.IsNaN(p) || math.IsInf(p, 0) {
				t.Fatalf("price %d is %v\n%+v", l, p, s)
			}
		}
	})
}
