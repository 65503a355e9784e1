// Package admission decides which clients are admitted at the limits: token buckets for new
// streams and connections, of which one address gets at most half, and quotas of one peer.
package admission

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
)

// Reason is why one was not let in; "" = it was.
type Reason string

// The reasons.
const (
	TotalRate       Reason = "rate"
	PeerRate        Reason = "peer_rate"
	PeerStreams     Reason = "peer_streams"
	PeerLocalities  Reason = "peer_localities"
	NoMessage       Reason = "no_message"
	Answers         Reason = "answers"
	Connections     Reason = "connections"
	PeerConnections Reason = "peer_connections"
	PartMessages    Reason = "part_messages"
	Yielded         Reason = "yielded"
	ProxyHeader     Reason = "proxy_header"
)

// Counts beside those of streams.
const (
	ofClients   = "connection"
	OfOperators = "admin_connection"
)

// Text describes the reason, for the peer.
func (r Reason) Text() string {
	switch r {
	case TotalRate:
		return "too many new streams at once"
	case PeerRate:
		return "too many new streams from your address at once"
	case PeerStreams:
		return "too many open streams of one peer"
	case PeerLocalities:
		return "one peer has too many localities"
	case NoMessage:
		return "a request was begun and its message did not come"
	case Answers:
		return "too many large answers that clients have not read yet"
	case Connections:
		return "too many connections"
	case PeerConnections:
		return "too many connections from your address"
	case PartMessages:
		return "too many bytes of messages that are not whole or were not read yet"
	case ProxyHeader:
		return "the load balancer sent no valid PROXY header"
	case Yielded:
		return "it waited or did not read while others wanted to connect"
	default:
		return fmt.Sprintf("refused (%s)", string(r))
	}
}

// Metrics count refusals.
type Metrics struct {
	refused     *prometheus.CounterVec
	connections prometheus.Gauge
}

// NewMetrics makes the metrics; nil exports none.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_admission_refused_total", Help: "Streams and connections refused or closed above a limit, by kind and reason.",
		}, []string{"what", "reason"}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isobar_xds_connections", Help: "Open connections of the xDS listeners.",
		}),
	}
	for _, reason := range []Reason{TotalRate, PeerRate, PeerStreams, PeerLocalities, NoMessage, Answers} {
		m.refused.WithLabelValues("stream", string(reason))
	}
	for _, reason := range []Reason{TotalRate, PeerRate, Connections, PeerConnections, PartMessages, ProxyHeader} {
		m.refused.WithLabelValues(ofClients, string(reason))
	}
	for _, reason := range []Reason{Connections, PeerConnections, Yielded} {
		m.refused.WithLabelValues(OfOperators, string(reason))
	}
	if r != nil {
		r.MustRegister(m.refused, m.connections)
	}
	return m
}

// Stream counts a stream that was refused.
func (m *Metrics) Stream(r Reason) { m.refused.WithLabelValues("stream", string(r)).Inc() }

func (m *Metrics) refuse(what string, r Reason) { m.refused.WithLabelValues(what, string(r)).Inc() }

// Address is the name under which a peer without identity counts: its IP address, and of IPv6 the
// first 64 bits, since one machine has all the others. An address that is no IP address, such as
// a socket in memory, counts as one peer.
func Address(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return "local"
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked().String()
	}
	return ip.String()
}
