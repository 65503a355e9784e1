package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/isobar-xds/isobar"
)

// zoneHistory is which share of the ready Pods each zone had, and since when.
type zoneHistory struct {
	mu    sync.Mutex
	since []time.Time
	share []map[string]float64
}

func (h *zoneHistory) add(now time.Time, ready map[string]int) {
	total := 0
	for _, n := range ready { //isobar:sorted it adds them up
		total += n
	}
	share := make(map[string]float64, len(ready))
	for zone, n := range ready { //isobar:sorted each by itself
		share[zone] = float64(n) / float64(total)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since, h.share = append(h.since, now), append(h.share, share)
}

// last returns what holds now.
func (h *zoneHistory) last() map[string]float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.share) == 0 {
		return nil
	}
	return h.share[len(h.share)-1]
}

// each yields the shares of the past, the newest first, with their age: how long ago they
// ended, 0 for what holds now.
func (h *zoneHistory) each(now time.Time, yield func(age time.Duration, share map[string]float64) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	age := time.Duration(0)
	for i, since := range slices.Backward(h.since) {
		if !yield(age, h.share[i]) {
			return
		}
		age = max(0, now.Sub(since))
	}
}

// behind returns by how much a split differs from the past, in points, at the moment of
// the last seconds that is nearest to it.
func (h *zoneHistory) behind(split map[string]float64, now time.Time, within time.Duration) float64 {
	least := math.Inf(1)
	h.each(now, func(age time.Duration, share map[string]float64) bool {
		if age > within {
			return false
		}
		least = min(least, distance(split, share))
		return true
	})
	return least
}

// never is how long ago something was that the past does not have.
const never = time.Duration(math.MaxInt64)

// late returns how long ago the past was within 2 points of a split.
func (h *zoneHistory) late(split map[string]float64, now time.Time) time.Duration {
	late := never
	h.each(now, func(age time.Duration, share map[string]float64) bool {
		if distance(split, share) <= 2 {
			late = age
			return false
		}
		return true
	})
	return late
}

// distance is the largest difference of a zone, in points.
func distance(a, b map[string]float64) float64 {
	most := 0.0
	for _, zone := range []string{"us/a", "us/b", "us/c"} {
		most = max(most, 100*math.Abs(a[zone]-b[zone]))
	}
	return most
}

func splitByZone(split map[isobar.Locality]float64) map[string]float64 {
	out := make(map[string]float64, len(split))
	for l, share := range split { //isobar:sorted each by itself
		out[l.String()] = share
	}
	return out
}

// lateness is how late weights were at most behind the EndpointSlices and the Pods, and
// EndpointSlices behind the Pods.
type lateness struct {
	slices, pods, controllers time.Duration
}

func (l *lateness) see(now time.Time, split map[string]float64, listed, pods *zoneHistory) {
	l.slices = max(l.slices, listed.late(split, now))
	l.pods = max(l.pods, pods.late(split, now))
	l.controllers = max(l.controllers, pods.late(listed.last(), now))
}

func (l *lateness) String() string {
	age := func(d time.Duration) string {
		if d == never {
			return "never"
		}
		return "after " + d.Round(10*time.Millisecond).String()
	}
	return fmt.Sprintf("of the EndpointSlices %s, of the ready Pods %s; EndpointSlices of the ready Pods %s (each the most)", age(l.slices), age(l.pods), age(l.controllers))
}

// check fails the test if weights were more than 2 s late. The time by which the
// controllers exceed a second is theirs.
func (l *lateness) check(t *testing.T) {
	t.Helper()
	if l.slices > 2*time.Second {
		t.Errorf("weights are up to %s behind the EndpointSlices", l.slices)
	}
	if l.controllers == never {
		t.Error("EndpointSlices had shares that ready Pods never had")
		return
	}
	if limit := 2*time.Second + max(0, l.controllers-time.Second); l.pods > limit {
		t.Errorf("weights are up to %s behind the ready Pods, of which EndpointSlices took %s", l.pods, l.controllers)
	}
}

// watchSlices records which share of the ready endpoints of a Service each zone has.
func (c *cluster) watchSlices(namespace, service string) *zoneHistory {
	c.t.Helper()
	return watchZones(c, "/apis/discovery.k8s.io/v1/namespaces/"+namespace+"/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D"+service,
		func(s *discoveryv1.EndpointSlice) (name string, ready map[string]string) {
			ready = map[string]string{} // by Pod, which stands in two slices while it moves
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				if e.Zone != nil && e.TargetRef != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
					ready[string(e.TargetRef.UID)] = "us/" + *e.Zone
				}
			}
			return s.Name, ready
		})
}

// watchPods records which share of the ready Pods of a namespace each zone has. Pods that
// are deleted are not ready, as for the controllers.
func (c *cluster) watchPods(namespace string) *zoneHistory {
	c.t.Helper()
	return watchZones(c, "/api/v1/namespaces/"+namespace+"/pods?fieldSelector=", func(p *corev1.Pod) (name string, ready map[string]string) {
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil {
				return p.Name, map[string]string{string(p.UID): "us/" + strings.TrimPrefix(p.Spec.NodeName, "node-")}
			}
		}
		return p.Name, nil
	})
}

// watchZones records, as a watch of objects has it, which share of what is ready each zone
// has, until the test ends. ready gives the zones of what is ready by an object.
func watchZones[T any](c *cluster, path string, ready func(*T) (name string, zones map[string]string)) *zoneHistory {
	c.t.Helper()
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []T
	}
	c.do(http.MethodGet, path, nil, &list)
	objects := map[string]map[string]string{}
	for i := range list.Items {
		name, zones := ready(&list.Items[i])
		objects[name] = zones
	}
	h := &zoneHistory{}
	h.add(time.Now(), countZones(objects))
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet,
		"https://"+c.address+path+"&watch=true&resourceVersion="+list.Metadata.ResourceVersion, http.NoBody)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := c.client.Do(req) //nolint:bodyclose // the goroutine below closes it
	if err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer func() { _ = resp.Body.Close() }()
		events := json.NewDecoder(resp.Body)
		for {
			var event struct {
				Type   string
				Object T
			}
			if events.Decode(&event) != nil {
				return // the test has ended
			}
			name, zones := ready(&event.Object)
			if objects[name] = zones; event.Type == "DELETED" {
				delete(objects, name)
			}
			h.add(time.Now(), countZones(objects))
		}
	}()
	return h
}

// countZones counts what is ready by locality, each Pod once.
func countZones(objects map[string]map[string]string) map[string]int {
	pods := map[string]string{}
	for _, zones := range objects {
		maps.Copy(pods, zones)
	}
	out := map[string]int{}
	for _, zone := range pods { //isobar:sorted it counts
		out[zone]++
	}
	return out
}

// busyness tells what processors did since it was made.
type busyness struct {
	t      *testing.T
	before []float64
}

func newBusyness(t *testing.T) *busyness {
	t.Helper()
	return &busyness{t, processorTimes(t)}
}

// processorTimes returns the first line of /proc/stat: user, nice, system, idle, waiting
// for disks, interrupts, soft interrupts, stolen by other machines.
func processorTimes(t *testing.T) []float64 {
	t.Helper()
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	var out []float64
	for _, word := range strings.Fields(line)[1:9] {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

func (b *busyness) String() string {
	total, now := 0.0, processorTimes(b.t)
	for i := range now {
		now[i] -= b.before[i]
		total += now[i]
	}
	return fmt.Sprintf("processors: %.0f%% idle, %.0f%% waited for disks, %.0f%% stolen", 100*now[3]/total, 100*now[4]/total, 100*now[7]/total)
}
