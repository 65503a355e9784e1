package solver

// transport is a maximum flow from sources to localities, grown from any flow
// that keeps both sides (Dinic 1970, on a dense bipartite graph). All amounts
// are exact differences, so that comparisons with zero are safe.
type transport struct {
	sources, localities int
	open                []bool
	flow                []float64 // per arc
	unmet               []float64 // demand left, per source
	headroom            []float64 // headroom left, per locality

	level      []int // breadth-first levels: sources, then localities; -1 = not reached
	queue      []int
	nextSource []int // where the depth-first search goes on, per locality
	nextTarget []int // the same, per source
}

func newTransport(sources, localities int, open []bool) *transport {
	return &transport{
		sources: sources, localities: localities, open: open,
		flow:       make([]float64, sources*localities),
		unmet:      make([]float64, sources),
		headroom:   make([]float64, localities),
		level:      make([]int, sources+localities),
		nextSource: make([]int, localities),
		nextTarget: make([]int, sources),
	}
}

// fill sends straight what fits, source by source, in proportion to headroom left.
func (t *transport) fill() {
	for s := range t.sources {
		if t.unmet[s] == 0 {
			continue
		}
		sum := 0.0
		row := t.open[s*t.localities : (s+1)*t.localities]
		for l, o := range row {
			if o {
				sum += t.headroom[l]
			}
		}
		if sum <= 0 {
			continue
		}
		part := min(1, t.unmet[s]/sum)
		for l, o := range row {
			if o {
				t.send(s, l, min(t.unmet[s], part*t.headroom[l]))
			}
		}
	}
}

// starved returns the sources with demand that reach no headroom at all. It needs no flow to see
// them: what rounding leaves of the demand of others, which may be more than all of theirs, is
// not in it.
func (t *transport) starved() (sources []int) {
	for s, d := range t.unmet {
		if d <= 0 {
			continue
		}
		headroom := 0.0
		for l := range t.localities {
			if t.open[s*t.localities+l] {
				headroom += t.headroom[l]
			}
		}
		if headroom == 0 {
			sources = append(sources, s)
		}
	}
	return sources
}

func (t *transport) send(s, l int, amount float64) {
	t.flow[s*t.localities+l] += amount
	t.unmet[s] -= amount
	t.headroom[l] -= amount
}

// grow makes the flow a largest one. Every phase lengthens the shortest
// augmenting path, so there are at most as many as nodes.
func (t *transport) grow() {
	for range t.sources + t.localities + 1 {
		if !t.search() {
			return
		}
		clear(t.nextSource)
		clear(t.nextTarget)
		for s := range t.sources {
			for t.unmet[s] > 0 && t.level[s] == 0 {
				got := t.push(s, t.unmet[s])
				if got == 0 {
					break
				}
				t.unmet[s] -= got
			}
		}
	}
}

// search levels the nodes that unmet demand reaches; it reports whether headroom is
// among them.
func (t *transport) search() bool {
	for i := range t.level {
		t.level[i] = -1
	}
	t.queue = t.queue[:0]
	for s, d := range t.unmet {
		if d > 0 {
			t.level[s] = 0
			t.queue = append(t.queue, s)
		}
	}
	found := false
	for i := 0; i < len(t.queue); i++ {
		v := t.queue[i]
		if v < t.sources {
			for l := range t.localities {
				if t.open[v*t.localities+l] && t.level[t.sources+l] < 0 {
					t.level[t.sources+l] = t.level[v] + 1
					t.queue = append(t.queue, t.sources+l)
				}
			}
			continue
		}
		l := v - t.sources
		if t.headroom[l] > 0 {
			found = true
			continue
		}
		for s := range t.sources {
			if t.level[s] < 0 && t.flow[s*t.localities+l] > 0 {
				t.level[s] = t.level[v] + 1
				t.queue = append(t.queue, s)
			}
		}
	}
	return found
}

// reached returns the sources that the last search levelled.
func (t *transport) reached() (sources []int) {
	for s, level := range t.level[:t.sources] {
		if level >= 0 {
			sources = append(sources, s)
		}
	}
	return sources
}

// push sends up to limit from a source along levels and returns what it could.
func (t *transport) push(s int, limit float64) float64 {
	for ; t.nextTarget[s] < t.localities; t.nextTarget[s]++ {
		l := t.nextTarget[s]
		a := s*t.localities + l
		if !t.open[a] || t.level[t.sources+l] != t.level[s]+1 {
			continue
		}
		if got := t.through(l, limit); got > 0 {
			t.flow[a] += got
			return got
		}
	}
	return 0
}

// through puts up to limit into a locality: into its headroom, or by pushing out
// what another source has there.
func (t *transport) through(l int, limit float64) float64 {
	if t.headroom[l] > 0 {
		got := min(limit, t.headroom[l])
		t.headroom[l] -= got
		return got
	}
	for ; t.nextSource[l] < t.sources; t.nextSource[l]++ {
		s := t.nextSource[l]
		a := s*t.localities + l
		if t.flow[a] <= 0 || t.level[s] != t.level[t.sources+l]+1 {
			continue
		}
		if got := t.push(s, min(limit, t.flow[a])); got > 0 {
			t.flow[a] -= got
			return got
		}
	}
	return 0
}
