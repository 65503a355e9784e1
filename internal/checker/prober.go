package checker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

// Outcome is what became of one probe.
type Outcome uint8

// The outcomes. They differ in how they count, as in Envoy.
const (
	// Passed probes got the answer that was expected.
	Passed Outcome = iota
	// Failed probes got an answer that says no: the endpoint is unhealthy at
	// once, whatever the threshold.
	Failed
	// Broken probes got no whole answer (refused, reset, no TLS), or one that
	// the check calls retriable: so many in a row as the threshold says make
	// the endpoint unhealthy.
	Broken
	// TimedOut probes count as broken ones do, and show in the status.
	TimedOut
	// Blind probes could not be made because this machine lacked something,
	// such as open files: they say nothing of the endpoint. After so many in a
	// row as the threshold says it is left out of reports.
	Blind
)

var outcomeNames = [...]string{"passed", "failed", "broken", "timed_out", "blind"}

// String names the outcome as metrics do.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// lostConnection tells that the next probe needs a new connection.
func (o Outcome) lostConnection() bool { return o == Broken || o == TimedOut || o == Blind }

// Prober probes one endpoint. It is used by one goroutine at a time.
type Prober interface {
	// Probe asks once and returns soon after ctx ends. The error says why for
	// people; it is nil only for Passed.
	Probe(ctx context.Context) (Outcome, error)
	// Close lets go of connections. It is called once, after the last probe.
	Close()
}

// Target is where an endpoint is probed, after all overrides.
type Target struct {
	Cluster  string
	Network  string // "tcp" or "unix"
	Address  string // IP:port, or a path
	Hostname string // the endpoint's own host or authority; empty = the check's
}

// authority is the host that probes name: the endpoint's, the check's, the
// cluster's. One that can't stand in a Host header, as names of clusters often
// can't, yields to the next, at last to the address.
func (t *Target) authority(ofCheck string) string {
	for _, name := range []string{t.Hostname, ofCheck, t.Cluster} {
		if validHost(name) {
			return name
		}
	}
	if t.Network == "unix" {
		return "localhost"
	}
	return t.Address
}

// validHost reports whether a name can stand in a Host header as net/http sends
// it.
func validHost(name string) bool {
	return name != "" && len(name) <= 512 && !strings.ContainsFunc(name, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune("!$%&'()*+,-.:;=[]_~", r)
	})
}

// lost classifies an error of the connection.
func lost(ctx context.Context, err error) (Outcome, error) {
	switch {
	case ownFault(err):
		return Blind, err
	case timedOut(ctx, err):
		if errors.Is(err, net.ErrClosed) {
			err = context.Cause(ctx) // it was closed here, because time was up
		}
		return TimedOut, err
	default:
		return Broken, err
	}
}

// ownFault reports whether this machine, not the endpoint, made a probe fail.
func ownFault(err error) bool {
	for _, want := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, want) {
			return true
		}
	}
	return false
}

func timedOut(ctx context.Context, err error) bool {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// targetOf tells where an endpoint is probed: health_check_config changes its
// address, its port and its host name.
func targetOf(cluster string, e *endpointv3.Endpoint) (Target, error) {
	own := e.GetAddress()
	hc := e.GetHealthCheckConfig()
	if _, _, err := reach(own, hc.GetPortValue()); err != nil {
		return Target{}, fmt.Errorf("address: %w", err)
	}
	place := "address"
	if hc.GetAddress() != nil {
		own, place = hc.GetAddress(), "health_check_config.address"
	}
	network, address, err := reach(own, hc.GetPortValue())
	if err != nil {
		return Target{}, fmt.Errorf("%s: %w", place, err)
	}
	return Target{Cluster: cluster, Network: network, Address: address, Hostname: hc.GetHostname()}, nil
}

// reach turns an address into what is dialled; port 0 keeps the address's own.
func reach(a *corev3.Address, port uint32) (network, address string, err error) {
	switch kind := a.GetAddress().(type) {
	case *corev3.Address_SocketAddress:
		return reachSocket(kind.SocketAddress, port)
	case *corev3.Address_Pipe:
		path := kind.Pipe.GetPath()
		if path == "" || len(path) > 107 { // sun_path of Linux
			return "", "", fmt.Errorf("pipe path of %d bytes: want 1 to 107", len(path))
		}
		return "unix", path, nil
	default:
		return "", "", errors.New("want a socket_address or a pipe")
	}
}

func reachSocket(s *corev3.SocketAddress, port uint32) (network, address string, err error) {
	ip, err := netip.ParseAddr(s.GetAddress())
	if err != nil {
		return "", "", fmt.Errorf("%q is not an IP address", short(s.GetAddress()))
	}
	if s.GetProtocol() != corev3.SocketAddress_TCP {
		return "", "", errors.New("only TCP can be probed")
	}
	if port == 0 {
		port = s.GetPortValue()
	}
	if port == 0 || port > 65535 {
		return "", "", fmt.Errorf("port %d: want 1 to 65535", port)
	}
	return "tcp", net.JoinHostPort(ip.String(), strconv.FormatUint(uint64(port), 10)), nil
}

// dialer returns what opens connections: the hook of the options, else the
// system's dialer, from the source address that the cluster names.
func dialer(hook dialFunc, bind *corev3.BindConfig) (dialFunc, error) {
	if hook != nil {
		return hook, nil
	}
	if bind.GetSourceAddress() == nil {
		return new(net.Dialer).DialContext, nil
	}
	ip, err := netip.ParseAddr(bind.GetSourceAddress().GetAddress())
	port := bind.GetSourceAddress().GetPortValue()
	if err != nil || port > 65535 {
		return nil, errors.New("upstream_bind_config.source_address: want an IP address and a port up to 65535")
	}
	bound := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, uint16(port)))}
	plain := new(net.Dialer)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if network == "unix" {
			return plain.DialContext(ctx, network, address)
		}
		return bound.DialContext(ctx, network, address)
	}, nil
}
