package chaos_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// adminVolume is what an administrator is told of a volume.
type adminVolume struct {
	ID, Tenant, Name, State string
	Ownerless               bool
}

// adminTemplate is what an administrator is told of a template.
type adminTemplate struct {
	Name, State, Image string
	Usable             bool
}

// unsettledKept says where broker and cloud do not agree on what is kept.
func (w *world) unsettledKept() string {
	if !w.keepers {
		return ""
	}
	for _, tenant := range keeping {
		if why := w.unsettledSnapshots(tenant); why != "" {
			return why
		}
	}
	if why := w.unsettledVolumes(); why != "" {
		return why
	}
	return w.unsettledTemplates()
}

func (w *world) unsettledSnapshots(tenant string) string {
	there := []string{}
	for _, c := range w.clouds {
		for _, s := range c.Snapshots() {
			if s.Labels[sdk.LabelTenant] == tenant {
				there = append(there, s.Labels[sdk.LabelSnapshot])
			}
		}
	}
	var list struct{ Snapshots []struct{ ID string } }
	if a := w.ask(http.MethodGet, "/api/v1/snapshots?limit=1000", tenant, nil, ""); a.Status != http.StatusOK || !a.into(&list) {
		return fmt.Sprintf("%s cannot list snapshots: %v %s", tenant, a.Err, a.Body)
	}
	known := []string{}
	for _, s := range list.Snapshots {
		known = append(known, s.ID)
	}
	slices.Sort(known)
	slices.Sort(there)
	if !slices.Equal(known, there) {
		return fmt.Sprintf("%s has according to the broker the snapshots\n%q, according to the cloud\n%q", tenant, known, there)
	}
	if used := w.used(tenant); used["max_snapshots"] != float64(len(known)) {
		return fmt.Sprintf("%s uses %v, and has %d snapshots", tenant, used, len(known))
	}
	return ""
}

// unsettledVolumes leaves out those that the broker is making and the cloud has not: who has
// asked for one may ask again for a while.
func (w *world) unsettledVolumes() string {
	there := []string{}
	for _, c := range w.clouds {
		for _, v := range c.Volumes() {
			there = append(there, v.Labels[sdk.LabelVolume])
		}
	}
	var list struct{ Data []adminVolume }
	if !w.adminList(pathAdmin+"/volumes", &list) {
		return "the volumes cannot be listed"
	}
	known := []string{}
	for _, v := range list.Data {
		if v.Ownerless {
			return fmt.Sprintf("the volume %s is nobody's", v.ID)
		}
		if v.State != "making" || slices.Contains(there, v.ID) {
			known = append(known, v.ID)
		}
	}
	slices.Sort(known)
	slices.Sort(there)
	if !slices.Equal(known, there) {
		return fmt.Sprintf("the broker has the volumes\n%q, the cloud has\n%q", known, there)
	}
	return ""
}

func (w *world) unsettledTemplates() string {
	there := []string{}
	for _, c := range w.clouds {
		for _, t := range c.Templates() {
			there = append(there, t.Image)
		}
	}
	var list struct{ Data []adminTemplate }
	if !w.adminList(pathTemplates, &list) {
		return "the templates cannot be listed"
	}
	known := []string{}
	for _, t := range list.Data {
		if t.State != "ready" {
			return fmt.Sprintf("the template %s is %s", t.Name, t.State)
		}
		known = append(known, t.Image)
	}
	slices.Sort(known)
	slices.Sort(there)
	if !slices.Equal(known, there) {
		return fmt.Sprintf("the broker has templates built to\n%q, the cloud has\n%q", known, there)
	}
	return ""
}

// kept checks what keepers were told against each other, what there is, and what has
// happened.
func (f *findings) kept(events []event, effects []cloud.Effect, forked map[string][]string) {
	f.snapshotLists(events)
	f.snapshotsThere(events)
	f.copies(events)
	f.forks(events, forked)
	f.volumes(events)
	f.templates(events, effects)
}

// ends are when it was first asked for the end of something, and when that was first
// acknowledged.
func ends(events []event, operation operation) (asked, gone map[string]time.Time) {
	asked, gone = map[string]time.Time{}, map[string]time.Time{}
	earlier := func(of map[string]time.Time, name string, at time.Time) {
		if before := of[name]; before.IsZero() || at.Before(before) {
			of[name] = at
		}
	}
	for _, e := range events {
		if e.Operation != operation {
			continue
		}
		earlier(asked, e.Kept, e.Began)
		if e.acknowledged() || e.Status == http.StatusNotFound {
			earlier(gone, e.Kept, e.Ended)
		}
	}
	return asked, gone
}

// snapshotLists have what was acknowledged, until somebody asks for its end or its time is
// over, and not what has ended.
func (f *findings) snapshotLists(events []event) {
	asked, gone := ends(events, opDrop)
	for _, list := range events {
		if list.Operation != opSnapshots || !list.answered() {
			continue
		}
		has := map[string]bool{}
		for _, id := range list.List {
			has[id] = true
		}
		for _, e := range events {
			if e.Operation != opSnapshot || !e.acknowledged() || e.Tenant != list.Tenant {
				if has[e.Kept] && e.Operation == opSnapshot && e.acknowledged() {
					f.add("seen: %s was shown the snapshot %s of %s", list.Tenant, e.Kept, e.Tenant)
				}
				continue
			}
			end := asked[e.Kept]
			lives := e.Ended.Before(list.Began) && list.Ended.Before(e.Expires) && (end.IsZero() || end.After(list.Ended))
			over := e.Expires.Before(list.Began) || !gone[e.Kept].IsZero() && gone[e.Kept].Before(list.Began)
			switch {
			case lives && !has[e.Kept]:
				f.add("lost: the snapshot %s was acknowledged at %s and is not listed at %s", e.Kept, e.Ended.Format(time.RFC3339Nano), list.Ended.Format(time.RFC3339Nano))
			case over && has[e.Kept]:
				f.add("undead: the snapshot %s has ended, and is listed at %s", e.Kept, list.Began.Format(time.RFC3339Nano))
			}
		}
	}
}

// snapshotsThere can be gone on from as long as they live.
func (f *findings) snapshotsThere(events []event) {
	asked, _ := ends(events, opDrop)
	expires := map[string]time.Time{}
	for _, e := range events {
		if e.Operation == opSnapshot && e.acknowledged() {
			expires[e.Kept] = e.Expires
		}
	}
	for _, e := range events {
		end := asked[e.Kept]
		if e.Operation == opCreate && e.Status == http.StatusNotFound && e.Ended.Before(expires[e.Kept]) && (end.IsZero() || end.After(e.Ended)) {
			f.add("lost: nothing goes on from the snapshot %s at %s: %s", e.Kept, e.Ended.Format(time.RFC3339Nano), e.Detail)
		}
	}
}

// copies tell what their original held at the moment, and all of a fork the same.
func (f *findings) copies(events []event) {
	told := map[string]string{}
	for _, e := range events {
		if e.Operation != opTell {
			continue
		}
		if e.Status == http.StatusNotFound {
			f.add("lost: the copy %s of %s has not what its original held: %s", e.Instance, e.Kept, e.Detail)
		}
		if !e.acknowledged() {
			continue
		}
		if !slices.Contains(e.List, e.Printed) {
			f.add("mixed up: the copy %s of %s holds %q, its original held one of %q", e.Instance, e.Kept, e.Printed, e.List)
		}
		if before, has := told[e.Kept]; has && before != e.Printed {
			f.add("torn: copies of %s hold %q and %q", e.Kept, before, e.Printed)
		}
		told[e.Kept] = e.Printed
	}
}

// forks have as many copies as were asked for, or an error and none. Of one that got no
// answer, since the broker died, there are all or none. there are those that there still are,
// by the names of forks.
func (f *findings) forks(events []event, there map[string][]string) {
	seen := map[string]bool{}
	answers := map[string]event{}
	for _, e := range events {
		switch e.Operation {
		case opFork:
			answers[e.Kept] = e // of one that was sent again the last
			if e.acknowledged() && len(e.List) != copies {
				f.add("torn: the fork %s has %d copies of %d", e.Kept, len(e.List), copies)
			}
		case opLeft:
			last := answers[e.Kept]
			if n := len(e.List); e.answered() && n != 0 && (n != copies || last.Error == "") {
				f.add("left over: the fork %s was answered with %d %s, and has %d copies of %d at %s: %q", e.Kept, last.Status, last.Error, n, copies, e.Ended.Format(time.RFC3339Nano), e.List)
			}
		default:
			continue
		}
		if e.answered() {
			for _, id := range e.List {
				seen[id] = true
			}
		}
	}
	for name, ids := range there {
		for _, id := range ids {
			if !seen[id] {
				f.add("left over: %s is a copy of the fork %s, and nobody was told of it", id, name)
			}
		}
	}
}

// forked are the copies of forks that there are, by the names of these.
func (w *world) forked() map[string][]string {
	w.t.Helper()
	there := map[string][]string{}
	for _, tenant := range keeping {
		var list struct {
			Instances []struct {
				ID     string
				Labels map[string]string
			}
		}
		a := w.ask(http.MethodGet, "/api/v1/instances?limit=1000", tenant, nil, "")
		assert.Assert(w.t, a.Status == http.StatusOK && a.into(&list), "%v %s", a.Err, a.Body)
		for _, i := range list.Instances {
			if name := i.Labels[forkLabel]; name != "" {
				there[name] = append(there[name], i.ID)
			}
		}
	}
	return there
}

// volumes hold what was written, as long as nobody asks for their end, and are not removed
// from under an instance.
func (f *findings) volumes(events []event) {
	for _, e := range events {
		switch {
		case e.Operation == opGet && e.acknowledged() && e.Printed != e.Token:
			f.add("mixed up: the volume %s of %s holds %q instead of %q at %s", e.Kept, e.Tenant, e.Printed, e.Token, e.Ended.Format(time.RFC3339Nano))
		case e.Operation == opGet && e.Status == http.StatusNotFound && e.Token != "":
			f.add("lost: what was written to the volume %s of %s is no more at %s: %s", e.Kept, e.Tenant, e.Ended.Format(time.RFC3339Nano), e.Detail)
		case e.Operation == opPut && e.Status == http.StatusNotFound:
			f.add("lost: the volume %s of %s is no more at %s: %s", e.Kept, e.Tenant, e.Ended.Format(time.RFC3339Nano), e.Detail)
		case e.Operation == opFree && e.Instance != "" && (e.acknowledged() || e.Status == http.StatusNotFound):
			f.add("lost: the volume %s was removed from under the instance %s at %s", e.Kept, e.Instance, e.Ended.Format(time.RFC3339Nano))
		}
	}
}

// templates are for whom they are, and what is made of one is made of what was built of an
// image that it was given.
func (f *findings) templates(events []event, effects []cloud.Effect) {
	built := map[string]cloud.Template{}
	for _, e := range effects {
		if e.Kind == cloud.Built {
			built[e.Template.Image] = e.Template
		}
	}
	for _, e := range effects {
		name := e.Instance.Template
		if e.Kind != cloud.Created || !strings.HasPrefix(name, "t-") {
			continue
		}
		tenant := e.Instance.Labels[sdk.LabelTenant]
		if !slices.Contains(templateNames(tenant), name) {
			f.add("seen: %s got an instance of the template %s", tenant, name)
		}
		if of := built[e.Instance.Image]; of.Name != name {
			f.add("mixed up: an instance of the template %s is made of %q, of the template %q", name, e.Instance.Image, of.Name)
		}
	}
	for _, e := range events {
		if e.Operation == opCreate && e.acknowledged() && strings.HasPrefix(e.Kept, "t-") && !slices.Contains(templateNames(e.Tenant), e.Kept) {
			f.add("seen: %s was told of an instance of the template %s", e.Tenant, e.Kept)
		}
	}
}

// nothingKept says that no cloud has anything that was kept, and that nothing of it counts.
func (w *world) nothingKept() {
	w.t.Helper()
	for _, c := range w.clouds {
		assert.Equal(w.t, len(c.Snapshots())+len(c.Volumes())+len(c.Templates()), 0, "they were all ended: %v %v %v", c.Snapshots(), c.Volumes(), c.Templates())
	}
	if !w.keepers {
		return
	}
	for _, tenant := range keeping {
		used := w.used(tenant)
		for _, limit := range []string{"max_instances", "max_snapshots", "max_snapshot_bytes", "max_volumes", "max_volume_bytes"} {
			assert.Equal(w.t, used[limit], 0.0, "%s uses %v", tenant, used)
		}
		// Of volumes it shows in that there is room for one that takes all.
		const name = "all"
		a := w.ask(http.MethodPost, "/api/v1/volumes", tenant, map[string]any{"name": name, "size_bytes": maxVolumeBytes}, "")
		assert.Equal(w.t, a.Status, http.StatusCreated, "%s", a.Body)
		a = w.ask(http.MethodDelete, "/api/v1/volumes/"+name, tenant, nil, "")
		assert.Equal(w.t, a.Status, http.StatusNoContent, "%s", a.Body)
	}
}

// keyOf names what a line of the audit log says of what is kept.
func (l auditLine) keyOf(operation string) string {
	switch operation {
	case "create_snapshot":
		return "keep " + l.Snapshot
	case "delete_snapshot":
		return "drop " + l.ProviderSnapshot
	case "create_volume":
		return "allot " + l.To
	case "delete_volume":
		return "free " + l.ProviderInstance
	case "build_template":
		return "build " + l.Template
	case "remove_template":
		return "discard " + l.Path
	default:
		return ""
	}
}

// keyOfKept names it by what the cloud says.
func keyOfKept(e cloud.Effect) string {
	switch e.Kind {
	case cloud.Kept:
		return "keep " + e.Snapshot.Labels[sdk.LabelSnapshot]
	case cloud.Dropped:
		return "drop " + e.Snapshot.ID
	case cloud.Allotted:
		return "allot " + e.Volume.Labels[sdk.LabelVolume]
	case cloud.Freed:
		return "free " + e.Volume.ID
	case cloud.Built:
		return "build " + e.Template.Name
	case cloud.Discarded:
		return "discard " + e.Template.Image
	default:
		return ""
	}
}
