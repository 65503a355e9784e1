package dataplane

// eligible selects the hosts that a part of the load goes to.
type eligible func(*Endpoint) bool

// known selects all: the excluded too, of which only the health is not known yet.
func known(e *Endpoint) bool { return !e.Repeated }

func predictPriority(p *Priority, load PriorityLoad, kind Kind, factor uint32, byWeight bool) PriorityPrediction {
	out := unpredicted(p, load)
	healthyLoad := float64(load.Healthy) / 100
	switch {
	case load.Panic:
		byHosts(&out, p, healthyLoad+float64(load.Degraded)/100, known, byWeight)
	case kind == GRPC:
		byLocality(&out, p, healthyLoad, (*Endpoint).healthy, 0, byWeight)
	default:
		byLocality(&out, p, healthyLoad, (*Endpoint).healthy, factor, byWeight)
		byLocality(&out, p, float64(load.Degraded)/100, (*Endpoint).degraded, factor, byWeight)
	}
	return out
}

// unpredicted is a priority of which no share is known yet.
func unpredicted(p *Priority, load PriorityLoad) PriorityPrediction {
	out := PriorityPrediction{
		Load: load.Healthy, DegradedLoad: load.Degraded, Panic: load.Panic,
		Localities: make([]LocalityPrediction, len(p.Localities)),
	}
	for i := range p.Localities {
		l := &p.Localities[i]
		out.Localities[i] = LocalityPrediction{Locality: l.Locality, Endpoints: make([]EndpointPrediction, len(l.Endpoints))}
		for k := range l.Endpoints {
			out.Localities[i].Endpoints[k].Address = l.Endpoints[k].Address
		}
	}
	return out
}

// predictHashed spreads the load of a priority over a ring or a table of hashes: of
// the healthy hosts, or in panic of all. They have their part of the weight of their
// locality, which does not shrink with its health. What is for degraded hosts is
// spread in the same way.
func predictHashed(p *Priority, load PriorityLoad) PriorityPrediction {
	out := unpredicted(p, load)
	ok := (*Endpoint).healthy
	if load.Panic {
		ok = known
	}
	byLocality(&out, p, float64(load.Healthy+load.Degraded)/100, ok, 0, true)
	return out
}

// Eligible counts the hosts of one locality.
type Eligible struct {
	Hosts   int // that a part of the load goes to: the healthy or the degraded ones
	Counted int // all but the excluded
}

// LocalityShares returns the fraction of a priority's load that each of its
// localities gets, and the sum of the effective weights; with a sum of 0 no
// locality can be picked by weight, and all fractions are 0. weights and hosts
// are by locality, in the same order. factor is Envoy's overprovisioning factor
// in percent; 0 stands for gRPC, where a locality counts in full as long as one
// host is eligible.
func LocalityShares(weights []uint32, hosts []Eligible, factor uint32) (shares []float64, sum float64) {
	shares = make([]float64, len(weights))
	for i, h := range hosts {
		switch {
		case factor > 0:
			shares[i] = EffectiveWeight(weights[i], h.Hosts, h.Counted, factor)
		case h.Hosts > 0:
			shares[i] = float64(weights[i])
		}
		sum += shares[i]
	}
	if sum > 0 {
		for i := range shares {
			shares[i] /= sum
		}
	}
	return shares, sum
}

// byLocality spreads load over the localities by their weights, and within each
// over its eligible hosts. factor 0 means that a locality counts in full as
// long as one host is eligible.
func byLocality(out *PriorityPrediction, p *Priority, load float64, ok eligible, factor uint32, byWeight bool) {
	if load <= 0 {
		return
	}
	weights, hosts := make([]uint32, len(p.Localities)), make([]Eligible, len(p.Localities))
	for i := range p.Localities {
		l := &p.Localities[i]
		weights[i] = l.Weight
		for k := range l.Endpoints {
			if l.Endpoints[k].counted() {
				hosts[i].Counted++
			}
			if ok(&l.Endpoints[k]) {
				hosts[i].Hosts++
			}
		}
	}
	shares, sum := LocalityShares(weights, hosts, factor)
	if sum <= 0 {
		// Envoy without any locality weight falls back to all eligible hosts;
		// gRPC leaves localities without a weight out.
		if factor > 0 {
			byHosts(out, p, load, ok, byWeight)
		}
		return
	}
	for i := range p.Localities {
		share := load * shares[i]
		out.Localities[i].Share += share
		within(out.Localities[i].Endpoints, p.Localities[i].Endpoints, share, ok, byWeight)
	}
}

// within spreads a locality's share over its eligible hosts.
func within(out []EndpointPrediction, hosts []Endpoint, share float64, ok eligible, byWeight bool) {
	var sum uint64
	for k := range hosts {
		if ok(&hosts[k]) {
			sum += hostWeight(&hosts[k], byWeight)
		}
	}
	for k := range hosts {
		if ok(&hosts[k]) {
			out[k].Share += share * float64(hostWeight(&hosts[k], byWeight)) / float64(sum)
		}
	}
}

func hostWeight(e *Endpoint, byWeight bool) uint64 {
	if byWeight {
		return e.weight()
	}
	return 1
}

// byHosts ignores locality weights: panic, and priorities without any weight.
func byHosts(out *PriorityPrediction, p *Priority, load float64, ok eligible, byWeight bool) {
	var sum uint64
	for i := range p.Localities {
		for k := range p.Localities[i].Endpoints {
			if e := &p.Localities[i].Endpoints[k]; ok(e) {
				sum += hostWeight(e, byWeight)
			}
		}
	}
	if sum == 0 {
		return
	}
	for i := range p.Localities {
		for k := range p.Localities[i].Endpoints {
			if e := &p.Localities[i].Endpoints[k]; ok(e) {
				share := load * float64(hostWeight(e, byWeight)) / float64(sum)
				out.Localities[i].Share += share
				out.Localities[i].Endpoints[k].Share += share
			}
		}
	}
}
