package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// get asks a broker and reads its answer.
func get[T any](t *testing.T, b *harness.Broker, path, token string) (into T) {
	t.Helper()
	answer := b.Do(http.MethodGet, path, token, nil)
	assert.NilError(t, answer.Err)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	answer.Into(t, &into)
	return into
}

// usedOf is what a tenant has used of a limit.
func usedOf(usage client.Usage, limit string) float64 {
	for _, line := range usage.Limits {
		if line.Name == limit && line.Used != nil {
			return *line.Used
		}
	}
	return -1
}

// Three brokers: each tells of what all of them have, in the same order and the same pages.
func TestListsAreOfAllBrokers(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	all := peers(t, 3, cloudConfig+adminBlock(), map[string]string{"mock_cloud": mockPlugin})
	var ids []string
	for n := range 9 {
		ids = append(ids, create(t, all[n%3], harness.Token, map[string]any{"session_id": fmt.Sprint("s", n), "ttl": 3600, "labels": map[string]string{"half": fmt.Sprint(n % 2)}}).ID)
	}
	theirs := create(t, all[1], harness.OtherToken, map[string]any{"ttl": 3600}).ID
	slices.Sort(ids)
	for _, b := range all {
		var found []string
		for after := ""; ; {
			list := get[client.InstanceList](t, b, "/api/v1/instances?limit=2"+after, harness.Token)
			assert.Check(t, len(list.Instances) == 2 || list.Next == "", "%v", list)
			for _, i := range list.Instances {
				found = append(found, i.ID)
			}
			if list.Next == "" {
				break
			}
			after = "&after=" + list.Next
		}
		assert.Check(t, is.DeepEqual(found, ids))
		assert.Check(t, is.Len(get[client.InstanceList](t, b, "/api/v1/instances?label=half=1", harness.Token).Instances, 4))
		assert.Check(t, is.Len(get[client.InstanceList](t, b, "/api/v1/instances?session_id=s4", harness.Token).Instances, 1))
		assert.Check(t, is.Len(get[client.InstanceList](t, b, "/api/v1/instances", harness.OtherToken).Instances, 1))
		assert.Check(t, is.Equal(usedOf(get[client.Usage](t, b, "/api/v1/usage", harness.Token), "max_instances"), 9.0))
		everybody := get[client.AdminUsage](t, b, "/api/admin/sandbox/usage", adminToken).Data
		assert.Assert(t, is.Len(everybody, 2))
		assert.Check(t, is.Equal(usedOf(everybody[0], "max_instances"), 9.0))
		assert.Check(t, is.Equal(usedOf(everybody[1], "max_instances"), 1.0))
		seen := get[client.AdminInstanceList](t, b, "/api/admin/sandbox/instances?text=ACME", adminToken)
		assert.Assert(t, is.Len(seen.Data, 9))
		brokers := map[string]int{}
		for _, i := range seen.Data {
			brokers[i.Broker]++
		}
		assert.Check(t, is.Len(brokers, 3), "%v", brokers)
	}

	// What administrators and tenants do with what they have found.
	answer := all[0].Do(http.MethodDelete, "/api/admin/sandbox/instances/"+theirs, adminToken, nil)
	assert.Equal(t, answer.Status, http.StatusNoContent, "%s", answer.Body)
	assert.Check(t, is.Len(get[client.InstanceList](t, all[2], "/api/v1/instances", harness.OtherToken).Instances, 0))

	// Executions, which are in no database.
	for n, b := range all {
		b.Execute(t, map[string]any{"language": "mock", "code": `{"stdout": "heard"}`, "execution_id": fmt.Sprint("x", n)})
	}
	for n := range all {
		through := all[(n+1)%3]
		path := fmt.Sprint("/api/v1/executions/x", n)
		one := get[client.ExecutionInfo](t, through, path, harness.Token)
		assert.Check(t, is.Equal(one.State, "succeeded"))
		events := through.Do(http.MethodGet, path+"/events", harness.Token, nil)
		assert.Check(t, is.Contains(string(events.Body), "heard"))
		harness.Refused(t, through.Do(http.MethodGet, path, harness.OtherToken, nil), http.StatusNotFound, "SB013")
		list := get[client.ExecutionList](t, through, "/api/v1/executions", harness.Token).Executions
		assert.Assert(t, is.Len(list, 3))
		assert.Check(t, slices.IsSortedFunc(list, func(a, b client.ExecutionInfo) int { return b.CreatedAt.Compare(a.CreatedAt) }))
	}
	forgotten := all[2].Do(http.MethodDelete, "/api/v1/executions/x0?forget=true", harness.Token, nil)
	assert.Equal(t, forgotten.Status, http.StatusAccepted, "%s", forgotten.Body)
	harness.Refused(t, all[0].Do(http.MethodGet, "/api/v1/executions/x0", harness.Token, nil), http.StatusNotFound, "SB013")

	// A list that would not be whole is none, but for administrators, who are told.
	all[2].Suspend()
	var group sync.WaitGroup
	for _, path := range []string{"instances", "snapshots", "executions", "usage"} {
		group.Go(func() {
			refused := all[0].Do(http.MethodGet, "/api/v1/"+path, harness.Token, nil)
			assert.Check(t, is.Equal(refused.Status, http.StatusServiceUnavailable), "%s %s", path, refused.Body)
			assert.Check(t, is.Contains(string(refused.Body), "SB009"))
			assert.Check(t, refused.Header.Get("Retry-After") != "")
		})
	}
	group.Go(func() {
		answer := all[1].Do(http.MethodGet, "/api/admin/sandbox/instances", adminToken, nil)
		var seen client.AdminInstanceList
		if assert.Check(t, is.Equal(answer.Status, http.StatusOK)) {
			answer.Into(t, &seen)
			assert.Check(t, is.Len(seen.Silent, 1))
			assert.Check(t, is.Len(seen.Data, 6))
		}
	})
	group.Wait()
	assert.NilError(t, syscall.Kill(all[2].PID, syscall.SIGCONT))
	await(t, all[0], "the list is whole again", func() bool {
		answer := all[0].Do(http.MethodGet, "/api/v1/instances", harness.Token, nil)
		var list client.InstanceList
		if answer.Status == http.StatusOK {
			answer.Into(t, &list)
		}
		return len(list.Instances) == 9
	})

	// Of a dead one nobody tells any more.
	all[2].Kill()
	all[2].WaitGone()
	await(t, all[0], "the list is that of those that live", func() bool {
		answer := all[0].Do(http.MethodGet, "/api/v1/instances", harness.Token, nil)
		var list client.InstanceList
		if answer.Status != http.StatusOK {
			assert.Equal(t, answer.Status, http.StatusServiceUnavailable, "%s", answer.Body)
			return false
		}
		answer.Into(t, &list)
		assert.Equal(t, len(list.Instances), 6)
		return true
	})
}

// Two brokers with sandboxes of their own: snapshots and volumes are found through both, and what
// is made of them is made where they are.
func TestSnapshotsAndVolumesAreFoundThroughAnyBroker(t *testing.T) {
	tier.Full(t)
	if os.Geteuid() != 0 {
		binaries.Missing(t, "snapshots and volumes need root")
	}
	t.Parallel()
	all := peers(t, 2, strings.Replace(selfManaged(t), "pool_size = 1", "pool_size = 1\n  volumes_mb = 256", 1)+"front_door \"e2b\" {}\n"+adminBlock(), nil)
	a, b := all[0], all[1]
	runs := func(through *harness.Broker, session, code string) string {
		t.Helper()
		return strings.TrimSpace(through.Execute(t, map[string]any{"session_id": session, "language": "bash", "code": code}).Stdout)
	}

	// Volumes: of a name there is one, whoever is asked, and however many at once.
	var made [8]int
	var group sync.WaitGroup
	for n := range made {
		group.Go(func() {
			made[n] = all[n%2].Do(http.MethodPost, "/api/v1/volumes", harness.Token, map[string]any{"name": "data", "size_bytes": 16 << 20}).Status
		})
	}
	group.Wait()
	slices.Sort(made[:])
	assert.Check(t, is.DeepEqual(made, [8]int{201, 409, 409, 409, 409, 409, 409, 409}))
	for n, through := range all {
		name := fmt.Sprint("own", n)
		answer := through.DoWith(http.MethodPost, "/api/v1/volumes", harness.Token, map[string]any{"name": name, "size_bytes": 16 << 20}, map[string]string{"Idempotency-Key": name})
		assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
		again := all[1-n].DoWith(http.MethodPost, "/api/v1/volumes", harness.Token, map[string]any{"name": name, "size_bytes": 16 << 20}, map[string]string{"Idempotency-Key": name})
		assert.Equal(t, string(again.Body), string(answer.Body))
	}
	for n, through := range all {
		other := fmt.Sprint("own", 1-n)
		assert.Check(t, is.Len(get[client.VolumeList](t, through, "/api/v1/volumes", harness.Token).Volumes, 3))
		assert.Check(t, is.Equal(get[client.Volume](t, through, "/api/v1/volumes/"+other, harness.Token).Name, other))
		harness.Refused(t, through.Do(http.MethodGet, "/api/v1/volumes/"+other, harness.OtherToken, nil), http.StatusNotFound, "SB013")
		_, err := through.API().WriteFile(t.Context(), client.FilesOf(other), map[string][]string{"path": {"note"}}, strings.NewReader("for "+other))
		assert.NilError(t, err)
		// An instance that has it is made where it is, and its session is there.
		create(t, through, harness.Token, map[string]any{"session_id": other, "ttl": 600, "volumes": []map[string]any{{"name": other, "path": "/mnt/v"}}})
		assert.Check(t, is.Equal(runs(all[n], other, "cat /mnt/v/note"), "for "+other))
		assert.Check(t, is.Equal(get[client.Volume](t, through, "/api/v1/volumes/"+other, harness.Token).InUse, true))
	}
	both := []map[string]any{{"name": "own0", "path": "/mnt/0"}, {"name": "own1", "path": "/mnt/1"}}
	harness.Refused(t, a.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"volumes": both}), http.StatusUnprocessableEntity, "SB010")
	harness.Refused(t, a.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": "own0", "volumes": both[1:]}), http.StatusConflict, "SB014")
	for n, through := range all {
		other := fmt.Sprint("own", 1-n)
		for _, i := range get[client.InstanceList](t, through, "/api/v1/instances?session_id="+other, harness.Token).Instances {
			assert.Equal(t, through.Do(http.MethodDelete, "/api/v1/instances/"+i.ID, harness.Token, nil).Status, http.StatusNoContent)
		}
		answer := through.Do(http.MethodDelete, "/api/v1/volumes/"+other, harness.Token, nil)
		assert.Equal(t, answer.Status, http.StatusNoContent, "%s", answer.Body)
	}
	// The name is free for the other one, and administrators end what is left through either.
	answer := b.Do(http.MethodPost, "/api/v1/volumes", harness.Token, map[string]any{"name": "own0", "size_bytes": 16 << 20})
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	for _, v := range get[client.AdminVolumeList](t, a, "/api/admin/sandbox/volumes", adminToken).Data {
		if v.State == "ready" {
			assert.Check(t, v.Broker != "")
			answer := a.Do(http.MethodDelete, "/api/admin/sandbox/volumes/"+v.ID, adminToken, nil)
			assert.Equal(t, answer.Status, http.StatusNoContent, "%s", answer.Body)
		}
	}
	assert.Check(t, is.Len(get[client.VolumeList](t, b, "/api/v1/volumes", harness.Token).Volumes, 0))

	// Snapshots.
	original := create(t, a, harness.Token, map[string]any{"session_id": "original", "ttl": 600, "language": "bash"})
	runs(a, "original", "echo kept > /workspace/note")
	kept := keep(t, b, original.ID, map[string]any{"name": "before"})
	for _, through := range all {
		assert.Check(t, is.Equal(get[client.Snapshot](t, through, "/api/v1/snapshots/"+kept.ID, harness.Token).Name, "before"))
		assert.Check(t, is.DeepEqual(snapshotsOf(t, through, harness.Token), []string{kept.ID}))
		harness.Refused(t, through.Do(http.MethodGet, "/api/v1/snapshots/"+kept.ID, harness.OtherToken, nil), http.StatusNotFound, "SB013")
	}
	copied := create(t, b, harness.Token, map[string]any{"session_id": "copy", "ttl": 600, "snapshot": kept.ID})
	assert.Check(t, is.Equal(runs(b, "copy", "cat /workspace/note"), "kept"))
	assert.Equal(t, b.Do(http.MethodDelete, "/api/v1/instances/"+copied.ID, harness.Token, nil).Status, http.StatusNoContent)
	assert.Equal(t, b.Do(http.MethodDelete, "/api/v1/instances/"+original.ID, harness.Token, nil).Status, http.StatusNoContent)
	answer = b.Do(http.MethodDelete, "/api/v1/snapshots/"+kept.ID, harness.Token, nil)
	assert.Equal(t, answer.Status, http.StatusNoContent, "%s", answer.Body)
	harness.Refused(t, a.Do(http.MethodGet, "/api/v1/snapshots/"+kept.ID, harness.Token, nil), http.StatusNotFound, "SB013")

	// The same by E2B's API.
	asked := func(through *harness.Broker, method, path, body string, into any) {
		t.Helper()
		askDoor(t, through, method, "/e2b"+path, http.Header{"X-Api-Key": {harness.Token}}, body, into)
	}
	type sandbox struct{ SandboxID string }
	var boxes [2]sandbox
	for n, through := range all {
		asked(through, http.MethodPost, "/sandboxes", `{"templateID":"base","timeout":600}`, &boxes[n])
	}
	var snapshot struct{ SnapshotID string }
	asked(b, http.MethodPost, "/sandboxes/"+boxes[0].SandboxID+"/snapshots", `{}`, &snapshot)
	var goesOn sandbox
	asked(b, http.MethodPost, "/sandboxes", `{"templateID":"`+snapshot.SnapshotID+`","timeout":600}`, &goesOn)
	for _, through := range all {
		var list []sandbox
		asked(through, http.MethodGet, "/v2/sandboxes", "", &list)
		found := map[string]bool{}
		for _, one := range list {
			found[one.SandboxID] = true
		}
		assert.Check(t, is.DeepEqual(found, map[string]bool{boxes[0].SandboxID: true, boxes[1].SandboxID: true, goesOn.SandboxID: true}))
		var snapshots []struct{ SnapshotID string }
		asked(through, http.MethodGet, "/snapshots", "", &snapshots)
		assert.Check(t, is.Len(snapshots, 1))
	}

	answer = a.Do(http.MethodPost, "/api/v1/volumes", harness.Token, map[string]any{"name": "of-a", "size_bytes": 16 << 20})
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)

	// What is on the disk of a dead broker is away, and not gone.
	a.Kill()
	a.WaitGone()
	await(t, b, "the broker counts as dead", func() bool {
		return b.Do(http.MethodGet, "/api/v1/snapshots", harness.Token, nil).Status == http.StatusOK
	})
	harness.Refused(t, b.Do(http.MethodGet, "/api/v1/snapshots/"+snapshot.SnapshotID, harness.Token, nil), http.StatusServiceUnavailable, "SB009")
	assert.Check(t, is.DeepEqual(snapshotsOf(t, b, harness.Token), []string{snapshot.SnapshotID}))
	harness.Refused(t, b.Do(http.MethodPost, "/api/v1/volumes", harness.Token, map[string]any{"name": "of-a", "size_bytes": 16 << 20}), http.StatusServiceUnavailable, "SB009")
	assert.Check(t, is.Len(get[client.VolumeList](t, b, "/api/v1/volumes", harness.Token).Volumes, 1))
	a.Restart()
	assert.Check(t, is.Equal(get[client.Volume](t, b, "/api/v1/volumes/of-a", harness.Token).Name, "of-a"))
}
