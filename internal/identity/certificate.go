package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
	authorities []Authority
}

// Authority is a certificate of those that sign the certificates of clients.
type Authority struct {
	Name        string // its subject
	From, Until time.Time
}

// timely reports whether the chain is good at a time, as far as that goes.
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

// Config returns settings for a listener; each new connection gets what the files
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

// Authorities lists who signs the certificates of clients, by the files in force, without
// certificates that others in the files renew.
func (c *Certificates) Authorities() []Authority { return c.current.Load().authorities }

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
	var authorities []Authority
	if f.ClientCA != "" {
		if out.ClientCAs, authorities, err = parseAuthorities(contents[2]); err != nil {
			return nil, fmt.Errorf("%s: %w", f.ClientCA, err)
		}
		out.ClientAuth = tls.RequireAndVerifyClientCert
		// A resumed session would carry an old verification past a change of
		// client_ca. Connections here live for days: a full handshake each costs
		// nothing that counts.
		out.SessionTicketsDisabled = true
	}
	return &inForce{config: out, from: first.NotBefore, until: first.NotAfter, authorities: authorities}, nil
}

// endsFirst returns the certificate of a chain that ends first.
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

var (
	errDamagedPEM = errors.New("PEM that is cut off or damaged")
	errNoPEM      = errors.New("no PEM certificate in it")
)

const certificateBlock = "CERTIFICATE"

// checkPEM refuses files of which the usual readers would silently take a part
// only: a block that is cut off, as in a file that is still being written, is no
// block for them, nor is one with a damaged line.
func checkPEM(data []byte) error {
	begun := 0
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte("-----BEGIN ")) {
			begun++
		}
	}
	read := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		read++
	}
	if read < begun {
		return fmt.Errorf("%w: %d of %d blocks can be read", errDamagedPEM, read, begun)
	}
	return nil
}

// parseAuthorities reads the certificates of authorities, all of them or none.
func parseAuthorities(data []byte) (pool *x509.CertPool, all []Authority, err error) {
	if err := checkPEM(data); err != nil {
		return nil, nil, err
	}
	pool = x509.NewCertPool()
	n := 0
	var certs []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificateBlock {
			continue
		}
		n++
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, fmt.Errorf("certificate %d: %w", n, err)
		}
		pool.AddCert(cert)
		certs = append(certs, cert)
	}
	if n == 0 {
		return nil, nil, errNoPEM
	}
	for _, cert := range certs {
		if !slices.ContainsFunc(certs, func(other *x509.Certificate) bool { return renews(other, cert) }) {
			all = append(all, Authority{Name: cert.Subject.String(), From: cert.NotBefore, Until: cert.NotAfter})
		}
	}
	return pool, all, nil
}

// renews reports whether a certificate is that of the same authority with the same key as an
// old one, and ends later: what the old one signed is valid with the new one.
func renews(cert, old *x509.Certificate) bool {
	return cert.NotAfter.After(old.NotAfter) && bytes.Equal(cert.RawSubject, old.RawSubject) &&
		bytes.Equal(cert.RawSubjectPublicKeyInfo, old.RawSubjectPublicKeyInfo)
}

// wrongAuthority is the failure of a client that does not know the server's authority.
const wrongAuthority = "certificate signed by unknown authority"

// tlsHints are what failures of TLS connections say, and what to do about each.
// Texts are compared because an error that went through gRPC is nothing else.
var tlsHints = []struct{ says, hint string }{
	{wrongAuthority, "none of the certificates in --ca signs the server's: give --ca the file of its authority"},
	{"is not yet valid: current time", ""}, // expired or not valid yet: told apart below
	{"cannot validate certificate for", "address the server by a name or an IP address in its certificate"},
	{"certificate is valid for", "address the server by a name or an IP address in its certificate"},
	{"certificate is not valid for any names", "the server's certificate needs the name or the IP address by which it is addressed"},
	{"tls: certificate required", "the server wants a certificate: give --cert and --key"},
	{"tls: expired certificate", "the server refuses the certificate of --cert, which has expired or is not valid yet: renew it"},
	{"tls: unknown certificate authority", "the server refuses the certificate of --cert: the server's client_ca does not sign it"},
	{"tls: bad certificate", "the server refuses the certificate of --cert: its log says why"},
	{"first record does not look like a TLS handshake", "the server does not use TLS at this address: leave --ca out"},
	{"gave HTTP response to HTTPS client", "the server does not use TLS at this address: write http://"},
}

// Hint tells what to do about a connection with these files that failed for its TLS; ""
// where TLS is not what failed. The flags are those of all commands that connect.
func (f DialFiles) Hint(err error) string {
	text := err.Error()
	if f.CA == "" && strings.Contains(text, wrongAuthority) {
		return "this machine does not know the authority of the server's certificate: give its file with --ca"
	}
	for _, h := range tlsHints {
		switch {
		case !strings.Contains(text, h.says):
		case h.hint != "":
			return h.hint
		case strings.Contains(text, " is before "):
			return "the server's certificate is not valid yet: look at the clocks of both machines"
		default:
			return "the server's certificate has expired: renew it there (xds.tls or admin.tls), or look at the clock of this machine"
		}
	}
	return ""
}

// DialFiles are the PEM files of a client.
type DialFiles struct {
	CA   string // who signs the server's certificate; "" = whom the system trusts
	Cert string // shown to the server; "" = none
	Key  string
}

// Config reads the files; an error names the one that is bad. A client that
// wants to follow them asks again for each connection.
func (f DialFiles) Config() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := filewatch.Read(f.CA, maxFile)
		if err != nil {
			return nil, err
		}
		if out.RootCAs, _, err = parseAuthorities(pem); err != nil {
			return nil, fmt.Errorf("%s: %w", f.CA, err)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("a certificate and its key belong together: give both")
	}
	if f.Cert == "" {
		return out, nil
	}
	cert, err := filewatch.Read(f.Cert, maxFile)
	if err != nil {
		return nil, err
	}
	key, err := filewatch.Read(f.Key, maxFile)
	if err != nil {
		return nil, err
	}
	if err := checkPEM(cert); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Cert, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", f.Cert, f.Key, err)
	}
	out.Certificates = []tls.Certificate{pair}
	return out, nil
}

// Validity reads from when until when the certificate is good that is shown at
// the next connection; ok is false where none is.
func (f DialFiles) Validity() (from, until time.Time, ok bool, err error) {
	if f.Cert == "" {
		return from, until, false, nil
	}
	config, err := f.Config()
	if err != nil {
		return from, until, true, err
	}
	first, err := endsFirst(&config.Certificates[0])
	if err != nil {
		return from, until, true, fmt.Errorf("%s: %w", f.Cert, err)
	}
	return first.NotBefore, first.NotAfter, true, nil
}

// ReadToken reads a token file.
func ReadToken(path string) (string, error) {
	content, err := filewatch.Read(path, maxFile)
	if err != nil {
		return "", err
	}
	token, err := parseToken(content)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return token, nil
}
