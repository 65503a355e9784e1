package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointsvc "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"golang.org/x/sync/errgroup"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

// assignmentType is the type URL of endpoint assignments.
const assignmentType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// discoveryStream is what ADS and the single EDS service have in common.
type discoveryStream interface {
	Send(req *discoveryv3.DiscoveryRequest) error
	Recv() (*discoveryv3.DiscoveryResponse, error)
}

func (a *Agent) openDiscovery(ctx context.Context) (discoveryStream, error) {
	if a.opts.Endpoints {
		return endpointsvc.NewEndpointDiscoveryServiceClient(a.opts.Conn).StreamEndpoints(ctx)
	}
	return discoveryv3.NewAggregatedDiscoveryServiceClient(a.opts.Conn).StreamAggregatedResources(ctx)
}

// discover runs one discovery stream: it subscribes, and applies and answers
// each response a push delay after its arrival.
func (a *Agent) discover(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := a.openDiscovery(ctx)
	if err != nil {
		return fmt.Errorf("open discovery: %w", err)
	}
	// Versions outlive streams: what is in use is shown on the new one.
	accepted := a.latestVersion()
	err = stream.Send(&discoveryv3.DiscoveryRequest{
		Node: a.node(), TypeUrl: assignmentType, ResourceNames: a.services, VersionInfo: accepted,
	})
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	line := newDelayLine[*discoveryv3.DiscoveryResponse](a.opts.PushDelay)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer cancel()
		return line.run(ctx, func(resp *discoveryv3.DiscoveryResponse) error {
			req := &discoveryv3.DiscoveryRequest{
				TypeUrl: resp.GetTypeUrl(), ResourceNames: a.services, ResponseNonce: resp.GetNonce(),
			}
			if bad := a.apply(resp); bad != nil {
				req.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: bad.Error()}
			} else {
				accepted = resp.GetVersionInfo()
			}
			req.VersionInfo = accepted
			return stream.Send(req)
		})
	})
	g.Go(func() error {
		defer cancel()
		for {
			resp, err := stream.Recv()
			if err != nil {
				return err
			}
			if err := line.put(ctx, resp); err != nil {
				return err
			}
		}
	})
	return g.Wait()
}

// apply takes the assignments of a response into use. One that is refused
// does not keep the others out, but the response is answered by a NACK.
func (a *Agent) apply(resp *discoveryv3.DiscoveryResponse) error {
	if resp.GetTypeUrl() != assignmentType {
		return fmt.Errorf("type %q was not asked for", resp.GetTypeUrl())
	}
	var refused error
	seen := make(map[string]bool, len(resp.GetResources()))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(time.Now())
	for _, res := range resp.GetResources() {
		cla := new(endpointv3.ClusterLoadAssignment)
		if err := res.UnmarshalTo(cla); err != nil {
			refused = fmt.Errorf("unreadable resource: %w", err)
			continue
		}
		if err := a.vet(cla, seen); err != nil {
			refused = fmt.Errorf("assignment %q: %w", cla.GetClusterName(), err)
			continue
		}
		if a.counts[cla.GetClusterName()] == nil {
			continue // not subscribed: clients ignore it
		}
		if old := a.assigned[cla.GetClusterName()]; old != nil && a.opts.Kind == KindEnvoy && onlyDropsDiffer(old.cla, cla) {
			cla = old.cla // Envoy accepts the update and goes on as before
		}
		a.assigned[cla.GetClusterName()] = &applied{
			cla: cla, version: resp.GetVersionInfo(), at: time.Now(), localities: localitiesOf(cla),
		}
	}
	if refused != nil {
		a.nacks++
	}
	close(a.changed)
	a.changed = make(chan struct{})
	return refused
}

// onlyDropsDiffer reports whether two assignments are equal but for what clients
// drop.
func onlyDropsDiffer(a, b *endpointv3.ClusterLoadAssignment) bool {
	return !proto.Equal(a, b) && proto.Equal(withoutDrops(a), withoutDrops(b))
}

func withoutDrops(cla *endpointv3.ClusterLoadAssignment) *endpointv3.ClusterLoadAssignment {
	out := proto.CloneOf(cla)
	if out.GetPolicy() != nil {
		out.Policy.DropOverloads = nil
		if proto.Equal(out.GetPolicy(), new(endpointv3.ClusterLoadAssignment_Policy)) {
			out.Policy = nil
		}
	}
	return out
}

func (a *Agent) vet(cla *endpointv3.ClusterLoadAssignment, seen map[string]bool) error {
	if seen[cla.GetClusterName()] {
		return errTwice
	}
	seen[cla.GetClusterName()] = true
	if err := checkAssignment(cla); err != nil {
		return err
	}
	if a.opts.Accept != nil {
		return a.opts.Accept(cla)
	}
	return nil
}

func (a *Agent) latestVersion() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var latest *applied
	for _, s := range a.services {
		if ap := a.assigned[s]; ap != nil && (latest == nil || ap.at.After(latest.at)) {
			latest = ap
		}
	}
	if latest == nil {
		return ""
	}
	return latest.version
}

var errTwice = errors.New("listed twice in one response")

// checkAssignment refuses what Envoy or gRPC refuses; it is written apart from
// the server's own validation, so that each can catch the other's mistakes.
func checkAssignment(cla *endpointv3.ClusterLoadAssignment) error {
	if cla.GetClusterName() == "" {
		return errors.New("no cluster name")
	}
	type place struct {
		priority uint32
		locality isobar.Locality
	}
	places := make(map[place]bool)
	addresses := make(map[string]bool)
	sums := make(map[uint32]uint64)
	highest := uint32(0)
	for _, le := range cla.GetEndpoints() {
		if le.GetLocality() == nil {
			return errors.New("a group has no locality")
		}
		l, p := localityOf(le), le.GetPriority()
		if p > 128 {
			return fmt.Errorf("%s: priority %d > 128", l, p)
		}
		if places[place{p, l}] {
			return fmt.Errorf("%s: twice in priority %d", l, p)
		}
		places[place{p, l}] = true
		if le.GetLoadBalancingWeight().GetValue() == 0 {
			return fmt.Errorf("%s: locality weight 0 or unset", l)
		}
		sums[p] += uint64(le.GetLoadBalancingWeight().GetValue())
		highest = max(highest, p)
		if err := checkHosts(le, addresses); err != nil {
			return fmt.Errorf("%s: %w", l, err)
		}
	}
	for p := range highest {
		if sums[p] == 0 {
			return fmt.Errorf("priority %d is missing", p)
		}
	}
	for p, sum := range sums {
		if sum > math.MaxUint32 {
			return fmt.Errorf("priority %d: locality weights sum to %d", p, sum)
		}
	}
	return checkPolicy(cla.GetPolicy())
}

func checkHosts(le *endpointv3.LocalityLbEndpoints, addresses map[string]bool) error {
	var sum uint64
	for _, ep := range le.GetLbEndpoints() {
		addr := addressOf(ep)
		if addr == "" {
			return errors.New("an endpoint has no socket address")
		}
		if addresses[addr] {
			return fmt.Errorf("address %s is listed twice", addr)
		}
		addresses[addr] = true
		w := ep.GetLoadBalancingWeight()
		if w != nil && w.GetValue() == 0 {
			return fmt.Errorf("%s: weight 0", addr)
		}
		sum += uint64(hostWeight(ep))
	}
	if sum > math.MaxUint32 {
		return fmt.Errorf("host weights sum to %d", sum)
	}
	return nil
}

func checkPolicy(p *endpointv3.ClusterLoadAssignment_Policy) error {
	if f := p.GetOverprovisioningFactor(); f != nil && f.GetValue() == 0 {
		return errors.New("overprovisioning factor 0")
	}
	if len(p.GetDropOverloads()) > 1 {
		return errors.New("more than one drop category")
	}
	for _, d := range p.GetDropOverloads() {
		if d.GetCategory() == "" {
			return errors.New("a drop category has no name")
		}
		ratio, ok := dropRatio(d)
		if !ok || ratio > 1 {
			return fmt.Errorf("drop category %s: bad fraction", d.GetCategory())
		}
	}
	return nil
}

// dropRatio reads the fraction of a drop category; ok is false for a
// denominator that does not exist.
func dropRatio(d *endpointv3.ClusterLoadAssignment_Policy_DropOverload) (ratio float64, ok bool) {
	n := float64(d.GetDropPercentage().GetNumerator())
	switch d.GetDropPercentage().GetDenominator() {
	case typev3.FractionalPercent_HUNDRED:
		return n / 1e2, true
	case typev3.FractionalPercent_TEN_THOUSAND:
		return n / 1e4, true
	case typev3.FractionalPercent_MILLION:
		return n / 1e6, true
	default:
		return 0, false
	}
}

func localityOf(le *endpointv3.LocalityLbEndpoints) isobar.Locality {
	l := le.GetLocality()
	return isobar.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()}
}

func addressOf(ep *endpointv3.LbEndpoint) string {
	sa := ep.GetEndpoint().GetAddress().GetSocketAddress()
	if sa.GetAddress() == "" {
		return ""
	}
	return joinPort(sa.GetAddress(), sa.GetPortValue())
}

// hostWeight is an endpoint's weight; unset is 1.
func hostWeight(ep *endpointv3.LbEndpoint) uint32 {
	return max(1, ep.GetLoadBalancingWeight().GetValue())
}

// OwnLocality is the split of a client without a locality-weighted policy that
// stays at home: everything goes to l.
func OwnLocality(l isobar.Locality) Split {
	return func(*endpointv3.ClusterLoadAssignment) map[isobar.Locality]float64 {
		return map[isobar.Locality]float64{l: 1}
	}
}

// ByEndpoints is the split of a client that ignores locality weights: every
// endpoint of priority 0 gets the same.
func ByEndpoints(cla *endpointv3.ClusterLoadAssignment) map[isobar.Locality]float64 {
	shares := make(map[isobar.Locality]float64)
	total := 0.0
	for _, le := range cla.GetEndpoints() {
		if n := usableHosts(le); le.GetPriority() == 0 && n > 0 {
			shares[localityOf(le)] += float64(n)
			total += float64(n)
		}
	}
	for l := range shares {
		shares[l] /= total
	}
	return shares
}

// predict works out what a client of a kind does with an assignment. The hosts
// of localities that are cut off count as unhealthy: gRPC has no connection to
// them, and Envoy's outlier detection has ejected them.
func predict(ap *applied, cut []bool, kind AgentKind) map[isobar.Locality]float64 {
	away := make(map[isobar.Locality]bool, len(cut))
	for i, l := range ap.localities {
		away[l] = cut[i]
	}
	model := dataplane.GRPC
	if kind == KindEnvoy {
		model = dataplane.Envoy
	}
	shares := make(map[isobar.Locality]float64)
	prediction := dataplane.Predict(clusterOf(ap.cla, away), model, dataplane.DefaultOptions())
	for _, p := range prediction.Priorities {
		for _, l := range p.Localities {
			if l.Share > 0 {
				shares[l.Locality] += l.Share
			}
		}
	}
	return shares
}

// clusterOf returns the plain values of an assignment, with the localities that
// are away as unhealthy.
func clusterOf(cla *endpointv3.ClusterLoadAssignment, away map[isobar.Locality]bool) dataplane.Cluster {
	c := dataplane.Cluster{OverprovisioningFactor: cla.GetPolicy().GetOverprovisioningFactor().GetValue()}
	for _, le := range cla.GetEndpoints() {
		for len(c.Priorities) <= int(le.GetPriority()) {
			c.Priorities = append(c.Priorities, dataplane.Priority{})
		}
		l := dataplane.Locality{Locality: localityOf(le), Weight: le.GetLoadBalancingWeight().GetValue()}
		for _, ep := range le.GetLbEndpoints() {
			health := healthOf(ep)
			if away[l.Locality] {
				health = isobar.Unhealthy
			}
			l.Endpoints = append(l.Endpoints, dataplane.Endpoint{Address: addressOf(ep), Weight: hostWeight(ep), Health: health})
		}
		p := &c.Priorities[le.GetPriority()]
		p.Localities = append(p.Localities, l)
	}
	return c
}

// healthOf is an endpoint's health; a state that does not exist is unhealthy.
func healthOf(ep *endpointv3.LbEndpoint) isobar.HealthStatus {
	if s := ep.GetHealthStatus(); s >= 0 && s <= corev3.HealthStatus_DEGRADED {
		return isobar.HealthStatus(s)
	}
	return isobar.Unhealthy
}

// localitiesOf lists the localities of an assignment, sorted.
func localitiesOf(cla *endpointv3.ClusterLoadAssignment) []isobar.Locality {
	var out []isobar.Locality
	for _, le := range cla.GetEndpoints() {
		out = append(out, localityOf(le))
	}
	slices.SortFunc(out, isobar.Locality.Compare)
	return slices.Compact(out)
}

// usableHosts counts the endpoints that take traffic.
func usableHosts(le *endpointv3.LocalityLbEndpoints) int {
	n := 0
	for _, ep := range le.GetLbEndpoints() {
		if healthOf(ep).Usable() {
			n++
		}
	}
	return n
}

func joinPort(host string, port uint32) string {
	return net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10))
}
