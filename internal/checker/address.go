package checker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

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

// dialer gives what opens connections: the hook of the options, else the
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
