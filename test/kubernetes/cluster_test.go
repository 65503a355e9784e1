package kubernetes_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const adminToken = "admin-of-the-tests"

// cluster is an etcd, an API server and Kubernetes' controllers, as processes.
type cluster struct {
	t         *testing.T
	dir       string
	address   string
	etcd      string
	client    *http.Client
	apiServer *exec.Cmd
}

// newCluster starts the processes, which end with the test.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir()}
	c.address, c.etcd = freeAddress(t), "http://"+freeAddress(t)
	peers := "http://" + freeAddress(t)
	c.keys()
	c.start("etcd", "--name=test", "--data-dir="+filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+c.etcd, "--advertise-client-urls="+c.etcd,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=test="+peers)
	c.startAPIServer()
	c.start("controllers", "--kubeconfig="+c.kubeconfig(adminToken))
	return c
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// keys writes the token of the tests and the key that signs service accounts' tokens.
func (c *cluster) keys() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write("sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	c.write("tokens", adminToken+",admin,admin,system:masters\n")
}

func (c *cluster) write(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// start runs a program until the test ends.
func (c *cluster) start(name string, args ...string) *exec.Cmd {
	c.t.Helper()
	return c.startWith(nil, name, args...)
}

// startWith runs a program with more variables in its environment.
func (c *cluster) startWith(environment []string, name string, args ...string) *exec.Cmd {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(c.t.Context()), filepath.Join(servers, name), args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if c.t.Failed() {
			if data, err := os.ReadFile(log.Name()); err == nil {
				c.t.Logf("%s wrote, at its end:\n%s", name, data[max(0, len(data)-3000):])
			}
		}
	})
	return cmd
}

func (c *cluster) startAPIServer() {
	c.t.Helper()
	_, port, err := net.SplitHostPort(c.address)
	if err != nil {
		c.t.Fatal(err)
	}
	key := filepath.Join(c.dir, "sa.key")
	c.apiServer = c.start("kube-apiserver", "--etcd-servers="+c.etcd, "--bind-address=127.0.0.1", "--advertise-address=10.255.255.1", "--secure-port="+port,
		"--cert-dir="+filepath.Join(c.dir, "certs"), "--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none",
		"--authorization-mode=RBAC", "--token-auth-file="+filepath.Join(c.dir, "tokens"), "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000")
	eventually(c.t, 5*time.Minute, "the API server is ready", func() bool {
		pool := x509.NewCertPool()
		data, err := os.ReadFile(filepath.Join(c.dir, "certs", "apiserver.crt"))
		if err != nil || !pool.AppendCertsFromPEM(data) {
			return false
		}
		c.client = &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, ForceAttemptHTTP2: true,
		}}
		return c.request(adminToken, http.MethodGet, "/readyz", nil, nil) == nil
	})
}

// stopAPIServer kills it; startAPIServer brings it back with the same state.
func (c *cluster) stopAPIServer() {
	_ = c.apiServer.Process.Kill()
	_ = c.apiServer.Wait()
}

// kubeconfig writes a file with a token.
func (c *cluster) kubeconfig(token string) string {
	c.t.Helper()
	ca, err := os.ReadFile(filepath.Join(c.dir, "certs", "apiserver.crt"))
	if err != nil {
		c.t.Fatal(err)
	}
	return c.write("kubeconfig-"+strconv.Itoa(len(token)), fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "https://%s", certificate-authority-data: %s}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
users: [{name: test, user: {token: %q}}]
`, c.address, base64.StdEncoding.EncodeToString(ca), token))
}

// statusError is an answer of the API server that is not what was asked for.
type statusError struct {
	code int
	body string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d: %s", e.code, e.body) }

// request sends and reads JSON.
func (c *cluster) request(token, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(c.t.Context()), method, "https://"+c.address+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= http.StatusMultipleChoices:
		return &statusError{resp.StatusCode, string(data)}
	case out == nil:
		return nil
	}
	return json.Unmarshal(data, out)
}

// codeOf returns the HTTP status of an error; 0 for none.
func codeOf(err error) int {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.code
	}
	return 0
}

// do is request as the administrator, of which the test needs the answer.
func (c *cluster) do(method, path string, in, out any) {
	c.t.Helper()
	if err := c.request(adminToken, method, path, in, out); err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
}

func (c *cluster) create(path string, object any) {
	c.t.Helper()
	c.do(http.MethodPost, path, object, nil)
}

// namespace makes one, with its service account default.
func (c *cluster) namespace(name string) {
	c.t.Helper()
	err := c.request(adminToken, http.MethodPost, "/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil)
	if err != nil && codeOf(err) != http.StatusConflict {
		c.t.Fatal(err)
	}
	eventually(c.t, 30*time.Second, "the service account of "+name, func() bool {
		return c.request(adminToken, http.MethodGet, "/api/v1/namespaces/"+name+"/serviceaccounts/default", nil, nil) == nil
	})
}

// tokenOf returns a token of the service account isobar.
func (c *cluster) tokenOf() string {
	c.t.Helper()
	var out authenticationv1.TokenRequest
	c.do(http.MethodPost, "/api/v1/namespaces/isobar/serviceaccounts/isobar/token", &authenticationv1.TokenRequest{}, &out)
	return out.Status.Token
}

// eventually waits for a condition.
func eventually(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}
