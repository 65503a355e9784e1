package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar/internal/filewatch"
)

// Files are the PEM files that a listener's TLS is made of.
type Files struct {
	Cert     string // the certificate, followed by those between it and the root
	Key      string // its key, not encrypted
	ClientCA string // who signs client certificates, which are then required; "" = none are asked for
}

// Paths lists the files that are given.
func (f Files) Paths() []string {
	out := []string{f.Cert, f.Key}
	if f.ClientCA != "" {
		out = append(out, f.ClientCA)
	}
	return out
}

// Options of what is kept up to date with files. The zero value is useful.
type Options struct {
	Name    string // of the listener, in logs and metrics
	Log     *slog.Logger
	Metrics *Metrics           // nil = none
	Trigger *filewatch.Trigger // asks for a reading without notice; nil = nobody does
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return o
}

// Certificates are the TLS settings of a listener. They follow their files as
// long as Follow runs. They are safe for concurrent use.
type Certificates struct {
	follower

	files   Files
	opts    Options
	current atomic.Pointer[inForce]
}

// inForce is what the files held when they were last good.
type inForce struct {
	config      *tls.Config
	from, until time.Time // of the certificate of the chain that ends first
}

// timely tells whether the chain is good at a time, as far as that goes.
func (f *inForce) timely(now time.Time) error {
	switch {
	case now.After(f.until):
		return fmt.Errorf("the certificate expired at %s", f.until.UTC().Format(time.RFC3339))
	case now.Before(f.from):
		return fmt.Errorf("the certificate is not valid before %s", f.from.UTC().Format(time.RFC3339))
	}
	return nil
}

// OpenCertificates reads the files; an error names the one that is bad.
func OpenCertificates(files Files, o Options) (*Certificates, error) {
	c := &Certificates{files: files, opts: o.withDefaults()}
	c.what, c.paths, c.follower.opts, c.follower.replace = "certificates", files.Paths(), c.opts, c.replace
	if err := c.open(); err != nil {
		return nil, err
	}
	return c, nil
}

// Config gives settings for a listener; each new connection gets what the files
// held last. The protocols are those of ALPN.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			current := c.current.Load().config.Clone()
			current.NextProtos = protocols
			return current, nil
		},
	}
}

// Validity tells from when until when the chain in force is good: of its
// certificates, that which ends first.
func (c *Certificates) Validity() (from, until time.Time) {
	current := c.current.Load()
	return current.from, current.until
}

// replace puts new contents of the files in force, if they are good. A
// certificate that clients would refuse today does not take the place of one
// that they accept; it is looked at again as its time comes.
func (c *Certificates) replace(contents [][]byte) error {
	next, err := c.files.parse(contents)
	if err != nil {
		return err
	}
	now := time.Now()
	if current := c.current.Load(); current != nil && current.timely(now) == nil {
		if err := next.timely(now); err != nil {
			return fmt.Errorf("%s: %w; the one in force is good until %s", c.files.Cert, err, current.until.UTC().Format(time.RFC3339))
		}
	}
	c.current.Store(next)
	c.opts.Metrics.expiry.WithLabelValues(c.opts.Name).Set(float64(next.until.Unix()))
	if now.After(next.until) {
		c.opts.Log.Error("the certificate has expired: clients will refuse it", "listener", c.opts.Name, "file", c.files.Cert, "expired", next.until)
	}
	return nil
}

// parse makes settings of the contents of Paths.
func (f Files) parse(contents [][]byte) (*inForce, error) {
	for i, path := range f.Paths() {
		if err := checkPEM(contents[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", f.Cert, f.Key, err)
	}
	first, err := endsFirst(&pair)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Cert, err)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if f.ClientCA != "" {
		if out.ClientCAs, err = parseAuthorities(contents[2]); err != nil {
			return nil, fmt.Errorf("%s: %w", f.ClientCA, err)
		}
		out.ClientAuth = tls.RequireAndVerifyClientCert
		// A resumed session would carry an old verification past a change of
		// client_ca. Connections here live for days: a full handshake each costs
		// nothing that counts.
		out.SessionTicketsDisabled = true
	}
	return &inForce{config: out, from: first.NotBefore, until: first.NotAfter}, nil
}

// endsFirst gives the certificate of a chain that ends first.
func endsFirst(pair *tls.Certificate) (*x509.Certificate, error) {
	first := pair.Leaf
	for i, der := range pair.Certificate[1:] {
		link, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", i+2, err)
		}
		if link.NotAfter.Before(first.NotAfter) {
			first = link
		}
	}
	return first, nil
}
