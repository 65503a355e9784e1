// Package apitest has a server that speaks as much of the Kubernetes API as Isobar
// uses, for tests.
package apitest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/v1alpha1"
)

// Server speaks the list and watch protocol of the Kubernetes API, in JSON:
// resource versions, bookmarks, streaming lists, 410 for what was compacted, 403.
type Server struct {
	t       *testing.T
	address string

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at each change
	version   int
	compacted int // versions up to here are gone
	objects   map[string]map[string]Object
	events    []event
	forbidden map[string]bool // resources
	noStreams bool            // see NoStreams
	cut       chan struct{}   // closed: connections of watches are cut
	requests  map[string]int  // "list services", "watch nodes"

	server *httptest.Server
}

// Object is a Service, an EndpointSlice, a policy, or a Node as metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

type event struct {
	version        int
	resource, kind string // kind is ADDED, MODIFIED or DELETED
	object         Object
}

// New starts a server that ends with the test.
func New(t *testing.T) *Server {
	t.Helper()
	a := &Server{
		t: t, changed: make(chan struct{}), cut: make(chan struct{}), version: 100,
		objects: map[string]map[string]Object{}, forbidden: map[string]bool{}, requests: map[string]int{},
	}
	a.Up()
	t.Cleanup(a.Down)
	return a
}

// Up listens, at the address of before if there was one.
func (a *Server) Up() {
	listener, err := (&net.ListenConfig{}).Listen(a.t.Context(), "tcp", cmp.Or(a.address, "127.0.0.1:0"))
	if err != nil {
		a.t.Fatal(err)
	}
	a.address = listener.Addr().String()
	a.server = httptest.NewUnstartedServer(a)
	_ = a.server.Listener.Close() // the one that it opened by itself
	a.server.Listener, a.server.EnableHTTP2 = listener, true
	a.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	a.server.StartTLS()
}

// Down closes the listener and all connections.
func (a *Server) Down() {
	a.server.CloseClientConnections()
	a.server.Close()
}

// Kubeconfig writes a file for it.
func (a *Server) Kubeconfig() string {
	path := filepath.Join(a.t.TempDir(), "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "https://%s", certificate-authority-data: %s}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
users: [{name: test, user: {token: secret}}]
`, a.address, base64.StdEncoding.EncodeToString(ca))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// NoStreams lets the server know no streaming lists, as before Kubernetes 1.34.
func (a *Server) NoStreams(is bool) { a.edit(func() { a.noStreams = is }) }

// Lose deletes an object without an event, and ends all watches with versions that
// are too old: clients learn of it by a list only.
func (a *Server) Lose(o Object) {
	a.edit(func() {
		a.version += 10
		a.compacted, a.events = a.version, nil
		close(a.cut)
		a.cut = make(chan struct{})
		delete(a.objects[resourceOf(o)], o.GetNamespace()+"/"+o.GetName())
	})
}

func (a *Server) edit(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	close(a.changed)
	a.changed = make(chan struct{})
}

// Put creates or replaces objects, each with a version of its own.
func (a *Server) Put(objects ...Object) {
	a.edit(func() {
		for _, o := range objects {
			resource, key, kind := resourceOf(o), o.GetNamespace()+"/"+o.GetName(), "MODIFIED"
			if a.objects[resource] == nil {
				a.objects[resource] = map[string]Object{}
			}
			if a.objects[resource][key] == nil {
				kind = "ADDED"
			}
			a.version++
			o.SetResourceVersion(strconv.Itoa(a.version))
			a.objects[resource][key] = o
			a.events = append(a.events, event{a.version, resource, kind, o})
		}
	})
}

// Remove deletes objects.
func (a *Server) Remove(objects ...Object) {
	a.edit(func() {
		for _, o := range objects {
			resource := resourceOf(o)
			delete(a.objects[resource], o.GetNamespace()+"/"+o.GetName())
			a.version++
			gone, _ := o.DeepCopyObject().(Object) // a copy has the same type
			gone.SetResourceVersion(strconv.Itoa(a.version))
			a.events = append(a.events, event{a.version, resource, "DELETED", gone})
		}
	})
}

// Compact forgets what happened until now: watches have to begin with a list.
func (a *Server) Compact() {
	a.edit(func() { a.compacted, a.events = a.version, nil })
}

// Forbid refuses all requests for a resource with 403, or no longer.
func (a *Server) Forbid(resource string, is bool) {
	a.edit(func() { a.forbidden[resource] = is })
}

// CutWatches closes the connections of all watches.
func (a *Server) CutWatches() {
	a.edit(func() {
		close(a.cut)
		a.cut = make(chan struct{})
	})
}

// Count returns how often a request came, as "list services" or "watch nodes".
func (a *Server) Count(request string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests[request]
}

func resourceOf(o Object) string {
	switch o.(type) {
	case *corev1.Service:
		return "services"
	case *discoveryv1.EndpointSlice:
		return "endpointslices"
	case *metav1.PartialObjectMetadata:
		return "nodes"
	case *v1alpha1.LoadBalancingPolicy:
		return v1alpha1.Policies
	}
	panic(fmt.Sprintf("%T", o))
}

var listKinds = map[string][2]string{
	"services": {"v1", "ServiceList"}, "endpointslices": {"discovery.k8s.io/v1", "EndpointSliceList"}, "nodes": {"meta.k8s.io/v1", "PartialObjectMetadataList"},
	v1alpha1.Policies: {"isobar.dev/v1alpha1", "LoadBalancingPolicyList"},
}

// ServeHTTP answers lists and watches.
func (a *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	for _, group := range []string{"/api/v1/", "/apis/discovery.k8s.io/v1/", "/apis/isobar.dev/v1alpha1/"} {
		path = strings.TrimPrefix(path, group)
	}
	namespace := ""
	if rest, found := strings.CutPrefix(path, "namespaces/"); found {
		namespace, path, _ = strings.Cut(rest, "/")
	}
	if r.Method == http.MethodPatch {
		a.patchStatus(w, r, namespace, path)
		return
	}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if listKinds[path] == [2]string{} || err != nil || r.Header.Get("Authorization") != "Bearer secret" {
		a.t.Errorf("unexpected request %s, authorization %q", r.URL, r.Header.Get("Authorization"))
		http.Error(w, "no", http.StatusNotFound)
		return
	}
	q := query{resource: path, namespace: namespace, selector: selector, w: w, r: r}
	watch, streams := r.URL.Query().Get("watch") != "", r.URL.Query().Get("sendInitialEvents") == "true"
	a.mu.Lock()
	verb := "list "
	if watch {
		verb = "watch "
	}
	a.requests[verb+path]++
	forbidden, noStreams := a.forbidden[path], a.noStreams
	a.mu.Unlock()
	switch {
	case forbidden:
		q.fail(http.StatusForbidden, metav1.StatusReasonForbidden, path+` is forbidden: User "isobar" cannot list it`)
	case watch && streams && noStreams:
		q.fail(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents: forbidden for watch unless the WatchList feature gate is enabled")
	case watch:
		a.watch(&q, streams)
	default:
		a.list(&q)
	}
}

// patchStatus replaces the status of a policy, if its version is that of the patch.
func (a *Server) patchStatus(w http.ResponseWriter, r *http.Request, namespace, path string) {
	q := query{w: w, r: r}
	name, found := strings.CutSuffix(strings.TrimPrefix(path, v1alpha1.Policies+"/"), "/status")
	var patch v1alpha1.LoadBalancingPolicy
	err := json.NewDecoder(r.Body).Decode(&patch)
	if r.Context().Err() != nil {
		return // the client went away
	}
	if err != nil || !found || r.Header.Get("Content-Type") != "application/merge-patch+json" {
		a.t.Errorf("unexpected request PATCH %s: %v", r.URL, err)
		q.fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "no")
		return
	}
	a.mu.Lock()
	a.requests["patch "+name]++
	old, exists := a.objects[v1alpha1.Policies][namespace+"/"+name].(*v1alpha1.LoadBalancingPolicy)
	forbidden := a.forbidden[v1alpha1.Policies+"/status"]
	a.mu.Unlock()
	switch {
	case forbidden:
		q.fail(http.StatusForbidden, metav1.StatusReasonForbidden, path+` is forbidden: User "isobar" cannot patch it`)
	case !exists:
		q.fail(http.StatusNotFound, metav1.StatusReasonNotFound, "no such policy")
	case old.ResourceVersion != patch.ResourceVersion:
		q.fail(http.StatusConflict, metav1.StatusReasonConflict, "the policy has changed")
	default:
		next := old.DeepCopy()
		next.Status = patch.Status
		a.Put(next)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(next) //nolint:errchkjson // the client may have gone
	}
}

// Policy returns a policy as it is now.
func (a *Server) Policy(namespace, name string) *v1alpha1.LoadBalancingPolicy {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, _ := a.objects[v1alpha1.Policies][namespace+"/"+name].(*v1alpha1.LoadBalancingPolicy)
	return p
}

// query is one request.
type query struct {
	resource, namespace string
	selector            labels.Selector
	w                   http.ResponseWriter
	r                   *http.Request
}

func (q *query) fits(o Object) bool {
	return (q.namespace == "" || q.namespace == o.GetNamespace()) && q.selector.Matches(labels.Set(o.GetLabels()))
}

func status(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}
}

func (q *query) fail(code int32, reason metav1.StatusReason, message string) {
	q.w.Header().Set("Content-Type", "application/json")
	q.w.WriteHeader(int(code))
	_ = json.NewEncoder(q.w).Encode(status(code, reason, message)) //nolint:errchkjson // the client may have gone
}

func (a *Server) all(q *query) []Object {
	var out []Object
	for _, o := range a.objects[q.resource] {
		if q.fits(o) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(x, y Object) int { return strings.Compare(x.GetName(), y.GetName()) })
	return out
}

func (a *Server) list(q *query) {
	a.mu.Lock()
	items := a.all(q)
	kind := listKinds[q.resource]
	body, err := json.Marshal(map[string]any{
		"apiVersion": kind[0], "kind": kind[1], "metadata": map[string]string{"resourceVersion": strconv.Itoa(a.version)}, "items": append([]Object{}, items...),
	})
	a.mu.Unlock()
	if err != nil {
		a.t.Error(err)
	}
	q.w.Header().Set("Content-Type", "application/json")
	_, _ = q.w.Write(body)
}

// watch streams events from the version on that the client names.
func (a *Server) watch(q *query, streams bool) {
	from, _ := strconv.Atoi(q.r.URL.Query().Get("resourceVersion"))
	flush := http.NewResponseController(q.w)
	encoder := json.NewEncoder(q.w)
	send := func(kind string, o any) { _ = encoder.Encode(map[string]any{"type": kind, "object": o}) } //nolint:errchkjson // the client may have gone
	q.w.Header().Set("Content-Type", "application/json")
	a.mu.Lock()
	cut := a.cut
	if streams {
		for _, o := range a.all(q) {
			send("ADDED", o)
		}
		from = a.version
		send("BOOKMARK", a.bookmark(q, map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
	}
	a.mu.Unlock()
	for {
		a.mu.Lock()
		changed, gone := a.changed, from < a.compacted
		if !gone {
			for _, e := range a.events {
				if e.version > from && e.resource == q.resource && q.fits(e.object) {
					send(e.kind, e.object)
				}
			}
			from = a.version
			send("BOOKMARK", a.bookmark(q, nil))
		}
		a.mu.Unlock()
		if gone {
			send("ERROR", status(http.StatusGone, metav1.StatusReasonExpired, "too old resource version"))
			return
		}
		_ = flush.Flush() // the client may have gone
		select {
		case <-changed:
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-q.r.Context().Done():
			return
		}
	}
}

func (a *Server) bookmark(q *query, annotations map[string]string) Object {
	meta := metav1.ObjectMeta{ResourceVersion: strconv.Itoa(a.version), Annotations: annotations}
	switch q.resource {
	case "services":
		return &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta}
	case "endpointslices":
		return &discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, ObjectMeta: meta}
	case v1alpha1.Policies:
		return &v1alpha1.LoadBalancingPolicy{TypeMeta: metav1.TypeMeta{APIVersion: "isobar.dev/v1alpha1", Kind: "LoadBalancingPolicy"}, ObjectMeta: meta}
	default:
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: meta}
	}
}
