package dns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	miekg "github.com/miekg/dns"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
)

const (
	// maxTTL is how long an answer counts at most.
	maxTTL = time.Hour
	// maxTargets is how many hosts of SRV records are resolved for one name.
	maxTargets = 1000
	// maxQuestions is how many questions are asked at once.
	maxQuestions = 32
	// udpSize is what fits into a packet that no network splits.
	udpSize = 1232
	// weightScale makes weights of hosts with several addresses divisible: most
	// numbers of addresses up to 10 divide it.
	weightScale = 2520
	// maxWeights bounds the sum of the weights of one name, so that those of all
	// names of a locality stay below 2^32.
	maxWeights = 4_000_000
)

// result is what a lookup gives.
type result struct {
	endpoints []isobar.Endpoint       // sorted by address, unique
	hosts     map[string][]netip.Addr // of the SRV records, by name
	ttl       time.Duration
	leftOut   int
	reason    string // of the first that is left out
	err       error  // nothing else counts
	partly    error  // of a host whose addresses of before are among the endpoints
}

// resolver asks the servers.
type resolver struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	slots chan struct{} // one for each question that is asked at once
	good  atomic.Uint32 // index of the server that answered last

	questions func(result string) // counts
}

// asking is a resolver with the servers of one configuration.
type asking struct {
	*resolver

	servers []string
	timeout time.Duration
}

// resolve looks a name up. before is what its last lookup gave: a host of an SRV
// record about which no server answers keeps its addresses.
func (a *asking) resolve(ctx context.Context, l Lookup, before *result) result {
	if !l.SRV {
		found, err := a.host(ctx, l.Name, l.Family)
		if err != nil {
			return result{err: err}
		}
		r := result{ttl: found.ttl}
		for _, ip := range found.addresses {
			r.add(l.Name, ip, l.Port, 0)
		}
		r.sort()
		return r
	}
	records, err := a.ask(ctx, l.Name, miekg.TypeSRV)
	if err != nil {
		return result{err: err}
	}
	return a.targets(ctx, l, &records, before)
}

// targets resolves the hosts of SRV records.
func (a *asking) targets(ctx context.Context, l Lookup, records *answer, before *result) result {
	r := result{ttl: records.ttl, hosts: map[string][]netip.Addr{}}
	targets := r.first(records.targets)
	if len(targets) > maxTargets {
		return result{err: fmt.Errorf("%d SRV records, want at most %d", len(targets), maxTargets)}
	}
	found, errs := make([]answer, len(targets)), make([]error, len(targets))
	var asked sync.WaitGroup
	for i := range targets {
		asked.Go(func() { found[i], errs[i] = a.host(ctx, targets[i].host, l.Family) })
	}
	asked.Wait()
	for i, t := range targets {
		name := strings.ToLower(t.host)
		if errs[i] != nil {
			kept, known := before.hosts[name]
			if !known && len(before.endpoints) > 0 {
				return result{err: errs[i]} // which of the endpoints are this host's is not known
			}
			found[i] = answer{addresses: kept, ttl: maxTTL}
			r.partly = errors.Join(r.partly, errs[i])
		}
		r.ttl = min(r.ttl, found[i].ttl)
		r.hosts[name] = found[i].addresses
		if len(found[i].addresses) == 0 {
			r.leave(1, printable(t.host)+" has no address")
		}
	}
	r.weigh(targets, found)
	r.sort()
	return r
}

// first returns the records of the first priority, in a fixed order: the others
// are for when all of those are gone, which the localities of a service are for here.
func (r *result) first(targets []target) []target {
	out := slices.Clone(targets)
	slices.SortFunc(out, func(a, b target) int {
		if a.priority != b.priority {
			return int(a.priority) - int(b.priority)
		}
		if n := strings.Compare(strings.ToLower(a.host), strings.ToLower(b.host)); n != 0 {
			return n
		}
		return int(a.port) - int(b.port)
	})
	for i, t := range out {
		if t.priority != out[0].priority {
			r.leave(len(out)-i, fmt.Sprintf("%s has priority %d, and only those of the first one, %d, count", printable(t.host), t.priority, out[0].priority))
			return out[:i]
		}
	}
	if len(out) == 1 && out[0].host == "." { // the service is decidedly not there (RFC 2782)
		return nil
	}
	return out
}

// weigh adds the addresses of all hosts with the weights of their records: each
// host has its weight, however many addresses it has. Where all weights are 0,
// none is set.
func (r *result) weigh(targets []target, found []answer) {
	sum, several := 0.0, false
	for i, t := range targets {
		sum += float64(t.weight)
		several = several || len(found[i].addresses) > 1
	}
	scale := 1.0
	if several {
		scale = weightScale
	}
	if sum > 0 {
		scale = min(scale, maxWeights/sum)
	}
	for i, t := range targets {
		weight := uint32(0)
		if n := len(found[i].addresses); sum > 0 && n > 0 {
			weight = uint32(max(1, math.Round(float64(t.weight)*scale/float64(n))))
		}
		for _, ip := range found[i].addresses {
			r.add(t.host, ip, t.port, weight)
		}
	}
}

// add takes one address, if clients can connect to it.
func (r *result) add(host string, ip netip.Addr, port uint16, weight uint32) {
	switch {
	case ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "":
		r.leave(1, fmt.Sprintf("%s of %s is no address that clients can connect to", ip, printable(host)))
	case port == 0:
		r.leave(1, "the record of "+printable(host)+" has port 0")
	default:
		r.endpoints = append(r.endpoints, isobar.Endpoint{Address: netip.AddrPortFrom(ip, port).String(), Weight: weight})
	}
}

func (r *result) leave(n int, reason string) {
	if r.leftOut == 0 {
		r.reason = keep.Short(reason)
	}
	r.leftOut += n
}

// sort brings the endpoints into an order that does not change from answer to
// answer, each address once.
func (r *result) sort() {
	slices.SortFunc(r.endpoints, func(a, b isobar.Endpoint) int { return strings.Compare(a.Address, b.Address) })
	r.endpoints = slices.CompactFunc(r.endpoints, func(a, b isobar.Endpoint) bool { return a.Address == b.Address })
}

// host returns the addresses of a host.
func (a *asking) host(ctx context.Context, name string, family Family) (answer, error) {
	if family == IPv6 {
		return a.ask(ctx, name, miekg.TypeAAAA)
	}
	found, err := a.ask(ctx, name, miekg.TypeA)
	if err != nil || family == IPv4 || !found.none() {
		return found, err
	}
	other, err := a.ask(ctx, name, miekg.TypeAAAA)
	if err != nil {
		return answer{}, err
	}
	other.ttl = min(other.ttl, found.ttl) // an IPv4 address may come
	return other, nil
}

// ask asks the servers, and follows aliases whose records are not in the answer.
func (a *asking) ask(ctx context.Context, name string, kind uint16) (answer, error) {
	ttl, next := maxTTL, name
	for range maxAliases {
		found, err := a.askServers(ctx, miekg.Fqdn(next), kind)
		if err != nil {
			return answer{}, err
		}
		ttl = min(ttl, found.ttl)
		if found.alias == "" {
			found.ttl = ttl
			return found, nil
		}
		next = found.alias
	}
	return answer{}, fmt.Errorf("more than %d aliases lead from %s", maxAliases, printable(name))
}

// askServers asks one server after the other until one answers, from the one on
// that answered last.
func (a *asking) askServers(ctx context.Context, name string, kind uint16) (answer, error) {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
	var problems []error
	first := int(a.good.Load())
	for i := range a.servers {
		at := (first + i) % len(a.servers)
		found, err := a.askServer(ctx, a.servers[at], name, kind)
		if err == nil {
			a.good.Store(uint32(at)) //nolint:gosec // there are few servers
			if found.none() {
				a.questions(resultNone)
			} else {
				a.questions(resultFound)
			}
			return found, nil
		}
		a.questions(resultFailed)
		problems = append(problems, fmt.Errorf("%s %s of %s: %w", miekg.TypeToString[kind], printable(name), a.servers[at], err))
		if ctx.Err() != nil {
			break
		}
	}
	return answer{}, errors.Join(problems...)
}

// askServer asks one server, over UDP and, for what does not fit, over TCP.
func (a *asking) askServer(ctx context.Context, server, name string, kind uint16) (found answer, err error) {
	defer func() { // the library reads data from any sender
		if r := recover(); r != nil {
			found, err = answer{}, fmt.Errorf("internal error in reading the answer: %v", r)
		}
	}()
	for _, network := range []string{"udp", "tcp"} {
		m, err := a.exchange(ctx, network, server, name, kind)
		if err != nil {
			return answer{}, err
		}
		if !m.Truncated {
			return readAnswer(m, name, kind)
		}
	}
	return answer{}, errors.New("the answer is cut off over TCP, too")
}

// exchange asks one question on a connection of its own, whose port is hard to
// guess.
func (a *asking) exchange(ctx context.Context, network, server, name string, kind uint16) (*miekg.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	conn, err := a.dial(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing more is expected of it
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	question := new(miekg.Msg)
	question.SetQuestion(name, kind)
	question.SetEdns0(udpSize, false)
	client := miekg.Client{Net: network, UDPSize: udpSize, Timeout: a.timeout}
	m, _, err := client.ExchangeWithConnContext(ctx, question, &miekg.Conn{Conn: conn, UDPSize: udpSize})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// printable bounds a name that others gave.
func printable(name string) string {
	return keep.Short(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name))
}

// systemServers are those of the system's file, which is read again when it has
// changed.
type systemServers struct {
	path string

	mu      sync.Mutex
	size    int64
	at      time.Time // of the file's last change
	servers []string
}

// list returns the servers. Without a file, or without a server in it, that is the
// one on this machine, as for the system's own resolver.
func (s *systemServers) list() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.path)
	if os.IsNotExist(err) {
		return []string{"127.0.0.1:53"}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("discovery.dns: the system's servers: %w", err)
	}
	if s.servers != nil && info.ModTime().Equal(s.at) && info.Size() == s.size {
		return s.servers, nil
	}
	conf, err := miekg.ClientConfigFromFile(s.path)
	if err != nil {
		return nil, fmt.Errorf("discovery.dns: the system's servers: %w", err)
	}
	servers := make([]string, 0, max(1, len(conf.Servers)))
	for _, host := range conf.Servers {
		if address := net.JoinHostPort(host, "53"); !slices.Contains(servers, address) {
			servers = append(servers, address)
		}
	}
	if len(servers) == 0 {
		servers = append(servers, "127.0.0.1:53")
	}
	s.size, s.at, s.servers = info.Size(), info.ModTime(), servers
	return servers, nil
}
