package file_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/engine/enginetest"
	"github.com/isobar-xds/isobar/internal/replica/engine/file"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// holdEnv has the test binary hold the lock of the directory that it names.
const holdEnv = "ISOBAR_TEST_HOLD_LOCK"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdEnv); dir != "" {
		if err := hold(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// hold takes the lock, says so, and keeps it until its standard input ends.
func hold(dir string) error {
	e, err := file.Open(dir, "prod", enginetest.Replica("child", 1))
	if err != nil {
		return err
	}
	s, err := e.Do(context.Background(), group.Request{Op: group.OpAcquire})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, s.Holder.Name); err != nil {
		return err
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return nil
}

func open(t *testing.T, dir string, self group.Identity) *file.Engine {
	t.Helper()
	e, err := file.Open(dir, "prod", self)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func TestRules(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) enginetest.Open {
		t.Helper()
		dir := t.TempDir()
		return func(t *testing.T, self group.Identity) engine.Engine {
			t.Helper()
			return open(t, dir, self)
		}
	})
}

// TestKilledLeader: the kernel frees the lock of a process that is killed.
func TestKilledLeader(t *testing.T) {
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), holdEnv+"="+dir)
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdin.Close() }()
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || strings.TrimSpace(line) != "child" {
		t.Fatalf("the child says %q: %v", line, err)
	}
	self := enginetest.Replica("parent", 1)
	e := open(t, dir, self)
	if s := enginetest.Do(t, e, group.Request{Op: group.OpAcquire}); s.Holder.Name != "child" {
		t.Fatalf("%s leads beside a living process that has the lock", s.Holder)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	if s := enginetest.Do(t, e, group.Request{Op: group.OpAcquire}); s.Holder != self {
		t.Fatalf("%s leads after the process that had the lock was killed", s.Holder)
	}
}

// TestRemovedLockFile: where an operator removes the lock file, the leader notices
// at its next renewal; two never both renew.
func TestRemovedLockFile(t *testing.T) {
	dir := t.TempDir()
	a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
	first, second := open(t, dir, a), open(t, dir, b)
	enginetest.Do(t, first, group.Request{Op: group.OpAcquire})
	if err := os.Remove(filepath.Join(dir, "prod.lock")); err != nil {
		t.Fatal(err)
	}
	if s := enginetest.Do(t, second, group.Request{Op: group.OpAcquire}); s.Holder != b {
		t.Fatalf("%s leads, want b, which locked the new file", s.Holder)
	}
	if s := enginetest.Do(t, first, group.Request{Op: group.OpRenew}); s.Holder != b {
		t.Fatalf("a renews to %s with a lock on a file that is gone", s.Holder)
	}
}

func TestGroupsAreApart(t *testing.T) {
	dir := t.TempDir()
	a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
	first := open(t, dir, a)
	second, err := file.Open(dir, "stage", b)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	enginetest.Do(t, first, group.Request{Op: group.OpAcquire})
	if s := enginetest.Do(t, second, group.Request{Op: group.OpAcquire}); s.Holder != b {
		t.Fatalf("%s leads group stage", s.Holder)
	}
}

func TestDamagedClaim(t *testing.T) {
	for name, data := range map[string]string{
		"no JSON": "epoch 1", "cut off": `{"epoch":1,`, "more": `{"epoch":1,"leader":{"name":"a"},"first_version":2000001,"format":1} {}`,
		"no leader": `{"epoch":1,"first_version":2000001,"format":1}`, "epoch 0": `{"leader":{"name":"a"},"first_version":2000001,"format":1}`,
		"huge": strings.Repeat(" ", 5000), "format 0": `{"epoch":1,"leader":{"name":"a"},"first_version":2000001}`,
		"overflow": `{"epoch":18446744073709551615,"leader":{"name":"a"},"first_version":2000001,"format":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			e := open(t, dir, enginetest.Replica("a", 1))
			path := filepath.Join(dir, "prod.claim")
			if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := e.Do(t.Context(), group.Request{Op: group.OpAcquire})
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Fatalf("got %v, want an error that names %s", err, path)
			}
			if kept, _ := os.ReadFile(path); string(kept) != data {
				t.Fatalf("the damaged claim was replaced by %q", kept)
			}
		})
	}
}

func TestNewerClaim(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir, enginetest.Replica("a", 1))
	data := `{"epoch":1,"leader":{"name":"a","incarnation":1},"first_version":2000001,"format":2}`
	if err := os.WriteFile(filepath.Join(dir, "prod.claim"), []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := e.Do(t.Context(), group.Request{Op: group.OpRead})
	if !errors.Is(err, group.ErrNewerFormat) || !strings.Contains(err.Error(), "format 2") || !strings.Contains(err.Error(), "up to 1") {
		t.Fatalf("got %v, want an error with both formats", err)
	}
}

// TestNewerClaimIsLedByOthers asserts that a replica which can't read the claim leaves
// leadership to those that can.
func TestNewerClaimIsLedByOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "prod.claim")
	if err := os.WriteFile(path, []byte(`{"format":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	older, newer := open(t, dir, enginetest.Replica("older", 1)), open(t, dir, enginetest.Replica("newer", 1))
	if _, err := older.Do(t.Context(), group.Request{Op: group.OpAcquire}); err == nil {
		t.Fatal("a replica leads a group whose claim it can't read")
	}
	if err := os.Remove(path); err != nil { // so that the other one can read it
		t.Fatal(err)
	}
	if s := enginetest.Do(t, newer, group.Request{Op: group.OpAcquire}); s.Holder.Name != "newer" {
		t.Fatalf("%q leads", s.Holder.Name)
	}
}

func TestRefusedGroupNames(t *testing.T) {
	for _, name := range []string{"", "a/b", "..", ".hidden", strings.Repeat("x", 101), "a b"} {
		if _, err := file.Open(t.TempDir(), name, enginetest.Replica("a", 1)); err == nil || !strings.Contains(err.Error(), "replicas.group") {
			t.Errorf("group %q: got %v, want an error that names replicas.group", name, err)
		}
	}
}

// TestWritesOfAnotherProcessAreSeen asserts that an engine which remembers the operators' writes
// sees those of another process, and that what it returned before does not change with them.
func TestWritesOfAnotherProcessAreSeen(t *testing.T) {
	dir := t.TempDir()
	one, other := open(t, dir, enginetest.Replica("one", 1)), open(t, dir, enginetest.Replica("other", 2))
	write := func(e *file.Engine, previous uint64, data string) {
		t.Helper()
		changes := []engine.Change{{Key: "pauses", Data: []byte(data)}}
		if err := e.WriteOperators(t.Context(), group.Claim{}, previous, previous+1, changes); err != nil { // there is no leader
			t.Fatal(err)
		}
	}
	read := func() engine.Written {
		t.Helper()
		w, err := one.ReadOperators(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	write(one, 0, `"first"`)
	before := read()
	for i := range uint64(20) {
		text := fmt.Sprintf(`"%05d"`, i)
		write(other, i+1, text)
		if last, err := one.LastWrite(t.Context()); err != nil || last != i+2 {
			t.Fatalf("the last write is %d, %v, want %d", last, err, i+2)
		}
		if got := string(read().Entries["pauses"]); got != text {
			t.Fatalf("%s, want %s", got, text)
		}
	}
	if err := other.WriteOperators(t.Context(), group.Claim{}, 21, 22, []engine.Change{{Key: "pauses", Data: []byte("{")}}); err == nil {
		t.Error("data that is no JSON was written")
	}
	if w := read(); w.Sequence != 21 {
		t.Errorf("the last write has number %d, want 21", w.Sequence)
	}
	if got := string(before.Entries["pauses"]); got != `"first"` {
		t.Errorf("the entries that were read first are %s now", got)
	}
}
