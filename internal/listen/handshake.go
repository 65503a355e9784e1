package listen

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar/internal/admission"
)

// tlsCredentials reports handshakes that fail: the client is told little, and
// often shows less.
type tlsCredentials struct {
	credentials.TransportCredentials

	failed func(peer net.Addr, err error)
}

// ServerHandshake implements credentials.TransportCredentials.
func (c tlsCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	l := &lingering{Conn: raw}
	conn, info, err := c.TransportCredentials.ServerHandshake(l)
	l.established = err == nil
	if err != nil {
		if l.heard && silentEnd(err) {
			err = errClientClosed
		}
		c.failed(raw.RemoteAddr(), err)
	}
	return conn, info, err
}

// errClientClosed stands for a client that began a handshake and closed the
// connection without a word, as some do that do not trust the server.
var errClientClosed = errors.New("the client closed the connection during the handshake; most often it does not trust the server's certificate, or its name")

// silentEnd reports whether a connection ended without an alert of TLS.
func silentEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// Bounds on what is waited for after a handshake that failed.
const (
	lingerTime  = time.Second
	lingerBytes = 64 << 10
)

// lingering reads what a client sends on after a handshake that failed, before
// it closes the connection. A client of TLS 1.3 takes the handshake for done
// when the server has yet to see its certificate; closing with its next words
// unread would reset the connection, and the reason would be lost on the way.
type lingering struct {
	net.Conn

	established bool // written before the connection is used by anyone else
	heard       bool // the client has sent something; read and written by the handshake only
}

// Read implements net.Conn.
func (l *lingering) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if !l.established && n > 0 {
		l.heard = true
	}
	return n, err
}

// Close implements net.Conn.
func (l *lingering) Close() error {
	if !l.established {
		_ = l.SetReadDeadline(time.Now().Add(lingerTime)) // a connection without deadlines is gone already
		_, _ = io.CopyN(io.Discard, l.Conn, lingerBytes)
	}
	return l.Conn.Close()
}

// Clone implements credentials.TransportCredentials.
func (c tlsCredentials) Clone() credentials.TransportCredentials {
	return tlsCredentials{c.TransportCredentials.Clone(), c.failed}
}

// transportCredentials are those of the configuration, with connections whose
// messages are counted.
func (g *Gate) transportCredentials() credentials.TransportCredentials {
	if g.xds == nil {
		return g.messages.Over(insecure.NewCredentials())
	}
	return g.messages.Over(tlsCredentials{credentials.NewTLS(g.xds.Config("h2")), g.handshakeFailed})
}

// messagesTookTooMuch reports a connection that was closed for them.
func (g *Gate) messagesTookTooMuch(peer net.Addr, bytes int64) {
	if skipped, ok := g.logs.Allow(time.Now()); ok {
		g.log.Warn("closed a connection with too many incomplete or unread messages", "reason", admission.PartMessages,
			"peer", peer.String(), "bytes", bytes, "skipped_lines", skipped)
	}
}

func (g *Gate) handshakeFailed(peer net.Addr, err error) {
	reason := handshakeReason(err)
	g.handshakes.WithLabelValues(reason).Inc()
	if reason == handshakeBroken {
		return // port scans and probes of load balancers
	}
	if reason == handshakeClient && !g.ended.allow(peer, time.Now()) {
		return // a client that does not trust the server tries again and again
	}
	if skipped, ok := g.logs.Allow(time.Now()); ok {
		g.log.Warn("a TLS handshake failed", "peer", peer.String(), "reason", reason, "error", err, "skipped_lines", skipped)
	}
}

// Reasons of handshakes that fail by no fault of a certificate of the client.
const (
	handshakeBroken = "broken"          // the connection ended before anything was said
	handshakeClient = "ended_by_client" // most often it does not trust the server
)

// addressLog lets one line a minute pass for each address. The zero value is
// ready; it is safe for concurrent use.
type addressLog struct {
	mu   sync.Mutex
	last map[string]time.Time
}

const (
	addressLogEach = time.Minute
	addressLogMost = 1024 // addresses that are remembered; of more nothing is logged
)

func (l *addressLog) allow(peer net.Addr, now time.Time) bool {
	host, _, err := net.SplitHostPort(peer.String())
	if err != nil {
		host = peer.String()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, known := l.last[host]; known && now.Sub(at) < addressLogEach {
		return false
	}
	if len(l.last) >= addressLogMost {
		maps.DeleteFunc(l.last, func(_ string, at time.Time) bool { return now.Sub(at) >= addressLogEach })
	}
	if len(l.last) >= addressLogMost {
		return false
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
	}
	l.last[host] = now
	return true
}

// handshakeReason tells what was wrong, for a label.
func handshakeReason(err error) string {
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		if invalid, ok := errors.AsType[x509.CertificateInvalidError](bad.Err); ok && invalid.Reason == x509.Expired {
			return "expired"
		}
		if _, ok := errors.AsType[x509.UnknownAuthorityError](bad.Err); ok {
			return "unknown_authority"
		}
		return "bad_certificate"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "not_tls"
	}
	if err.Error() == "tls: client didn't provide a certificate" { // crypto/tls has no value for it
		return "no_certificate"
	}
	if alert, ok := errors.AsType[*net.OpError](err); ok && alert.Op == "remote error" { // as crypto/tls calls an alert of the other end
		return handshakeClient
	}
	if errors.Is(err, errClientClosed) {
		return handshakeClient
	}
	return handshakeBroken
}
