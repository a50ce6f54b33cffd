package providertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func snapshotCases(languages []sdk.Language) []Case {
	const group = "snapshots"
	interpreters := needing(inLanguages(languages, []Case{
		{Group: group, Name: "a context goes on with its variables in the copy", run: copyKeepsVariables},
		{Group: group, Name: "what a context does later is not in the copy", run: copyIsOfItsMoment},
		{Group: group, Name: "what the context of a copy does is not in the original", run: originalIsApart},
		{Group: group, Name: "the contexts of a copy are listed as those of the original", run: copyListsContexts},
	}), sdk.CapabilityContexts)
	return needing(append([]Case{
		{Group: group, Name: "files are in the copy as they were", run: copyKeepsFiles},
		{Group: group, Name: "what is written later is not in the copy", run: copyLacksLaterFiles},
		{Group: group, Name: "what a copy writes is its own", run: copiesWriteApart},
		{Group: group, Name: "the original runs on", run: originalRunsOn},
		{Group: group, Name: "code that runs in the original meanwhile runs to its end", run: codeOutlivesSnapshot},
		{Group: group, Name: "it says what it is", run: snapshotIsDescribed},
		{Group: group, Name: "it is listed with its labels until it is deleted", run: snapshotIsListed},
		{Group: group, Name: "one key is one snapshot", run: snapshotOncePerKey},
		{Group: group, Name: "a copy is an instance of its own", run: copyIsAnInstance},
		{Group: group, Name: "a copy has the variables of the original and its own", run: copyAddsVariables},
		{Group: group, Name: "several copies at once are apart", run: copiesAtOnce},
		{Group: group, Name: "randomness is new in each copy", run: copiesDrawApart},
		{Group: group, Name: "copies outlive the snapshot", run: copiesOutliveSnapshot},
		{Group: group, Name: "it outlives its instance", run: snapshotOutlivesInstance},
		{Group: group, Name: "it outlives the process", run: snapshotOutlivesProcess},
		{Group: group, Name: "to delete one that is not there is a success", run: snapshotDeletedTwice},
		{Group: group, Name: "one that is not there makes no instance", run: noCopyOfNothing},
		{Group: group, Name: "another key opens nothing", run: anotherKeyOpensNothing},
		{Group: group, Name: "one above its bound is refused and leaves nothing", run: snapshotIsBounded},
		{Group: group, Name: "unknown instances are not found", run: snapshotUnknown},
		{Group: group, Name: "those of another broker are not listed", run: snapshotsOfOneBroker},
		{Group: group, Name: "an instance that is paused is a conflict, or kept", run: snapshotOfPaused, needs: []sdk.Capability{sdk.CapabilityPause}},
		{Group: group, Name: "a command in the background goes on in the copy", run: copyKeepsCommands, needs: []sdk.Capability{sdk.CapabilityCommands}},
	}, interpreters...), sdk.CapabilitySnapshots)
}

// snapshotKey is a tenant's key.
func snapshotKey() []byte { return bytes.Repeat([]byte("k"), sdk.SnapshotKeyBytes) }

// kept is a snapshot that a case has made, of an instance.
type kept struct {
	instance
	snapshot sdk.Snapshot
}

func (in instance) snapshotRequest() sdk.SnapshotRequest {
	return sdk.SnapshotRequest{
		InstanceID: in.ID, IdempotencyKey: randomWord(), Key: snapshotKey(),
		Labels: map[string]string{sdk.LabelTenant: "providertest", sdk.LabelSnapshot: "snap-" + randomWord(), sdk.LabelBroker: "providertest"},
	}
}

// keep makes a snapshot, deletes it at the end of the case, and skips where the provider
// cannot keep this instance.
func (in instance) keep(change ...func(*sdk.SnapshotRequest)) kept {
	req := in.snapshotRequest()
	for _, f := range change {
		f(&req)
	}
	made, err := in.tryKeep(req)
	if sdk.CodeOf(err) == sdk.CodeNotSupported {
		in.skip("the provider does not keep this instance: %v", err)
	}
	in.must(err, "keep the instance")
	return made
}

func (in instance) tryKeep(req sdk.SnapshotRequest) (kept, error) {
	var made sdk.Snapshot
	err := in.call("Snapshot", func(ctx context.Context) (err error) {
		made, err = in.Snapshot(ctx, req)
		return err
	})
	if err == nil {
		in.deleteLater(made.ID)
	}
	return kept{in, made}, err
}

func (c *scene) deleteLater(id string) {
	c.later(func() {
		if c.stopped {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), c.suite.within(callTimeout))
		defer cancel()
		if err := c.DeleteSnapshot(ctx, id); err != nil {
			c.note("delete the snapshot %s at the end: %v", id, err)
		}
	})
}

func (c *scene) deleteSnapshot(id string) {
	c.must(c.call("DeleteSnapshot", func(ctx context.Context) error { return c.DeleteSnapshot(ctx, id) }), "delete the snapshot %s", id)
}

// copyRequest asks for an instance that goes on from the snapshot.
func (k kept) copyRequest() sdk.CreateRequest {
	req := k.createRequest(k.language)
	req.Template, req.Snapshot = k.Template, &sdk.SnapshotSource{ID: k.snapshot.ID, Key: snapshotKey()}
	return req
}

// copy makes an instance that goes on from the snapshot.
func (k kept) copy() instance {
	made, err := k.tryCreate(k.copyRequest())
	k.must(err, "make an instance of the snapshot")
	return made
}

// withMemory skips where processes are not kept.
func (k kept) withMemory() kept {
	if !k.snapshot.Memory {
		k.skip("the provider keeps files alone (Snapshot.Memory)")
	}
	return k
}

// context is the same context in a copy.
func (in instance) context(of codeContext) codeContext {
	return codeContext{in.scene, of.CodeContext, in}
}

func (c *scene) listedSnapshots() map[string]sdk.Snapshot {
	var list []sdk.Snapshot
	c.must(c.call("ListSnapshots", func(ctx context.Context) (err error) {
		list, err = c.ListSnapshots(ctx)
		return err
	}), "list the snapshots")
	byID := map[string]sdk.Snapshot{}
	for _, s := range list {
		byID[s.ID] = s
	}
	return byID
}

// "Files are as they were." (CreateRequest.Snapshot)
func copyKeepsFiles(c *scene) {
	in := c.instance()
	in.run(c.samples.Write).succeeded()
	in.keep().copy().prints(c.samples.Read, "kept")
}

// "an instance as it is at a moment" (Snapshotter)
func copyLacksLaterFiles(c *scene) {
	in := c.instance()
	made := in.keep()
	in.run(c.samples.Write).succeeded()
	made.copy().prints(c.samples.Read, "absent")
}

// "make others that go on from there" (Snapshotter): each by itself.
func copiesWriteApart(c *scene) {
	in := c.instance()
	made := in.keep()
	one, other := made.copy(), made.copy()
	one.run(c.samples.Write).succeeded()
	one.prints(c.samples.Read, "kept")
	other.prints(c.samples.Read, "absent")
	in.prints(c.samples.Read, "absent")
}

// "The instance runs on" (Snapshotter.Snapshot)
func originalRunsOn(c *scene) {
	in := c.instance()
	in.run(c.samples.Write).succeeded()
	in.keep()
	in.prints(c.samples.Read, "kept")
	in.keep()
	in.prints(c.samples.Hello, "hello\n")
}

// "its executions, contexts and commands notice no more than a short halt"
// (Snapshotter.Snapshot)
func codeOutlivesSnapshot(c *scene) {
	in := c.instance()
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	e := c.begin(ctx, in.lasting(c.samples.Wait))
	e.saying("ready")
	in.keep()
	select {
	case <-e.done:
		got := e.outcome()
		c.fail("code in the original ended with the snapshot (%s, %v)", got.Status, got.err)
	default:
	}
	in.prints(c.samples.Hello, "hello\n")
	cancel()
	e.await(settleTimeout, "it was cancelled")
}

// "Labels as they were asked for." and the rest of Snapshot.
func snapshotIsDescribed(c *scene) {
	in := c.instance()
	req := in.snapshotRequest()
	began := time.Now()
	made := in.keep(func(r *sdk.SnapshotRequest) { *r = req }).snapshot
	c.check(maps.Equal(made.Labels, req.Labels), "the labels of the snapshot are %v, and %v were asked for", made.Labels, req.Labels)
	equal(c, made.Template, in.Template, "the template of the snapshot")
	const skew = time.Hour // of the provider's clock
	c.check(made.CreatedAt.After(began.Add(-skew)) && made.CreatedAt.Before(time.Now().Add(skew)), "the snapshot says that it was made at %v", made.CreatedAt)
}

// "every snapshot that carries the broker ID given to Configure" (Snapshotter.ListSnapshots)
func snapshotIsListed(c *scene) {
	made := c.instance().keep()
	c.eventually("the snapshot is listed", func(context.Context) error {
		listed, there := c.listedSnapshots()[made.snapshot.ID]
		if !there {
			return errNotYet
		}
		c.check(maps.Equal(listed.Labels, made.snapshot.Labels), "it is listed with the labels %v, and has %v", listed.Labels, made.snapshot.Labels)
		return nil
	})
	c.deleteSnapshot(made.snapshot.ID)
	c.eventually("the snapshot is not listed any more", func(context.Context) error {
		if _, there := c.listedSnapshots()[made.snapshot.ID]; there {
			return errNotYet
		}
		return nil
	})
}

// "A second call with the same IdempotencyKey returns what the first one made."
// (Snapshotter.Snapshot)
func snapshotOncePerKey(c *scene) {
	in := c.instance()
	req := in.snapshotRequest()
	first := in.keep(func(r *sdk.SnapshotRequest) { *r = req })
	again, err := in.tryKeep(req)
	c.must(err, "keep the instance once more with the same key")
	equal(c, again.snapshot.ID, first.snapshot.ID, "the snapshot that was asked for with the same key")
	c.check(in.keep().snapshot.ID != first.snapshot.ID, "two snapshots with keys of their own are one")
}

// "Labels are those of this request alone." (CreateRequest.Snapshot)
func copyIsAnInstance(c *scene) {
	in := c.instance()
	made := in.keep()
	req := made.copyRequest()
	copied, err := c.tryCreate(req)
	c.must(err, "make an instance of the snapshot")
	c.check(copied.ID != in.ID, "the copy has the ID of the original")
	c.eventually("the copy is listed with its labels", func(context.Context) error {
		listed, there := c.listed()[copied.ID]
		if !there {
			return errNotYet
		}
		for name, value := range req.Labels {
			c.check(listed.Labels[name] == value, "the label %s of the copy is %q, and %q was asked for", name, listed.Labels[name], value)
		}
		return nil
	})
	c.destroy(copied.ID)
	in.prints(c.samples.Hello, "hello\n")
}

// "Env is added to the one that the original was made with" (CreateRequest.Snapshot)
func copyAddsVariables(c *scene) {
	c.someLanguage()
	in := c.instanceWith(map[string]string{"PROVIDERTEST_A": "of the original", "PROVIDERTEST_B": "of the original"})
	made := in.keep()
	req := made.copyRequest()
	req.Env = map[string]string{"PROVIDERTEST_B": "of the copy", "PROVIDERTEST_C": "of the copy"}
	copied, err := c.tryCreate(req)
	c.must(err, "make an instance of the snapshot with variables")
	got := copied.run(c.samples.Variables)
	got.succeeded()
	c.hasVariables(got.stdout, map[string]string{"PROVIDERTEST_A": "of the original", "PROVIDERTEST_B": "of the copy", "PROVIDERTEST_C": "of the copy"})
	got = in.run(c.samples.Variables)
	got.succeeded()
	c.hasVariables(got.stdout, map[string]string{"PROVIDERTEST_A": "of the original", "PROVIDERTEST_B": "of the original"})
}

// "All other methods may be called concurrently" (Provider)
func copiesAtOnce(c *scene) {
	in := c.instance()
	in.run(c.samples.Write).succeeded()
	made := in.keep()
	const copies = 3
	var group sync.WaitGroup
	var ids [copies]string
	var errs [copies]error
	for n := range copies {
		req := made.copyRequest()
		group.Go(func() {
			ctx, cancel := context.WithTimeout(c.ctx, c.suite.within(callTimeout))
			defer cancel()
			one, err := c.Create(ctx, req)
			ids[n], errs[n] = one.ID, err
		})
	}
	group.Wait()
	seen := map[string]bool{}
	for n, id := range ids {
		if errs[n] == nil {
			c.destroyLater(id)
		}
	}
	for n, id := range ids {
		c.must(errs[n], "make %d instances of the snapshot at once", copies)
		c.check(!seen[id], "two copies have the ID %s", id)
		seen[id] = true
		c.withID(id).prints(c.samples.Read, "kept")
	}
}

// "What may not be the same twice is not: sources of randomness are seeded anew"
// (CreateRequest.Snapshot)
func copiesDrawApart(c *scene) {
	in := c.instance().commandsIfAny()
	made := in.keep()
	drawn := map[string]bool{in.draw(): true}
	for range 2 {
		value := made.copy().draw()
		c.check(!drawn[value], "two instances have drawn the same 16 bytes from /dev/urandom")
		drawn[value] = true
	}
}

// commandsIfAny chooses bash or Python, in which the case can draw.
func (in instance) commandsIfAny() instance {
	if in.language != sdk.Python && in.language != sdk.Bash {
		in.skip("the case draws in Python or bash")
	}
	return in
}

// draw prints bytes of the kernel's source of randomness.
func (in instance) draw() string {
	code := "import os; print(os.urandom(16).hex())"
	if in.language == sdk.Bash {
		code = "od -An -N16 -tx1 /dev/urandom"
	}
	got := in.execute(in.request(code))
	got.succeeded()
	return got.stdout
}

// "Instances that were made from it go on." (Snapshotter.DeleteSnapshot)
func copiesOutliveSnapshot(c *scene) {
	in := c.instance()
	in.run(c.samples.Write).succeeded()
	made := in.keep()
	copied := made.copy()
	c.deleteSnapshot(made.snapshot.ID)
	copied.prints(c.samples.Read, "kept")
	copied.prints(c.samples.Hello, "hello\n")
}

// "Any other is there until DeleteSnapshot" (SnapshotRequest.Transient)
func snapshotOutlivesInstance(c *scene) {
	in := c.instance()
	in.run(c.samples.Write).succeeded()
	made := in.keep()
	c.destroy(in.ID)
	made.copy().prints(c.samples.Read, "kept")
}

// "for the process after this one too, … whether or not the provider is Ephemeral"
// (SnapshotRequest.Transient)
func snapshotOutlivesProcess(c *scene) {
	c.someLanguage()
	brokerID, state := newBrokerID(), newBrokerID()
	first := c.newSession(brokerID, state)
	in := first.instance()
	in.run(c.samples.Write).succeeded()
	made := in.keep(func(r *sdk.SnapshotRequest) { r.Labels[sdk.LabelBroker] = brokerID })
	first.stopInOrder()
	again := c.newSession(brokerID, state)
	again.destroyLater(in.ID)
	again.deleteLater(made.snapshot.ID)
	again.eventually("the next process lists the snapshot", func(context.Context) error {
		if _, there := again.listedSnapshots()[made.snapshot.ID]; !there {
			return errNotYet
		}
		return nil
	})
	moved := kept{instance{again, in.Instance}, made.snapshot}
	moved.copy().prints(c.samples.Read, "kept")
}

// "Deleting one that does not exist is a success." (Snapshotter.DeleteSnapshot)
func snapshotDeletedTwice(c *scene) {
	made := c.instance().keep()
	c.deleteSnapshot(made.snapshot.ID)
	c.deleteSnapshot(made.snapshot.ID)
	c.deleteSnapshot("unknown" + randomWord())
}

// "A snapshot that is not there is CodeNotFound with the field "snapshot" and NoEffect"
// (CreateRequest.Snapshot)
func noCopyOfNothing(c *scene) {
	made := c.instance().keep()
	c.deleteSnapshot(made.snapshot.ID)
	for _, id := range []string{made.snapshot.ID, "unknown" + randomWord()} {
		req := made.copyRequest()
		req.Snapshot.ID = id
		_, err := c.tryCreate(req)
		c.refusedField(err, "Create from a snapshot that is not there", sdk.CodeNotFound, "snapshot")
		e, ok := errors.AsType[*sdk.Error](err)
		c.check(ok && e.NoEffect, "Create from a snapshot that is not there gave %v without NoEffect", err)
	}
}

// "one that the key does not open is CodeInvalidRequest with that field"
// (CreateRequest.Snapshot)
func anotherKeyOpensNothing(c *scene) {
	made := c.instance().keep()
	req := made.copyRequest()
	req.Snapshot.Key = bytes.Repeat([]byte("w"), sdk.SnapshotKeyBytes)
	before := len(c.listed())
	_, err := c.tryCreate(req)
	c.refusedField(err, "Create from a snapshot with another key", sdk.CodeInvalidRequest, "snapshot")
	equal(c, len(c.listed()), before, "the instances after that")
	made.copy().prints(c.samples.Hello, "hello\n")
}

// "A larger one is CodeQuotaExceeded, and nothing of it stays." (SnapshotRequest.MaxBytes)
func snapshotIsBounded(c *scene) {
	in := c.instance()
	in.run(c.samples.Write).succeeded()
	if in.keep().snapshot.Bytes == 0 {
		c.skip("the provider does not say what a snapshot takes")
	}
	before := len(c.listedSnapshots())
	req := in.snapshotRequest()
	req.MaxBytes = 1
	_, err := in.tryKeep(req)
	c.refused(err, "a snapshot of more than a byte", sdk.CodeQuotaExceeded)
	equal(c, len(c.listedSnapshots()), before, "the snapshots after that")
	in.prints(c.samples.Read, "kept")
}

// The table of Snapshotter.Snapshot.
func snapshotUnknown(c *scene) {
	c.someLanguage()
	in := c.withID("unknown" + randomWord())
	_, err := in.tryKeep(in.snapshotRequest())
	c.refused(err, "a snapshot of an unknown instance", sdk.CodeNotFound)
}

// "and no other: as List does for instances" (Snapshotter.ListSnapshots)
func snapshotsOfOneBroker(c *scene) {
	c.someLanguage()
	state := newBrokerID()
	one := c.newSession(newBrokerID(), state)
	made := one.instance().keep()
	other := c.newSession(newBrokerID(), newBrokerID())
	_, there := other.listedSnapshots()[made.snapshot.ID]
	c.check(!there, "the snapshot of one broker is listed to another")
}

// The same table: "it is paused".
func snapshotOfPaused(c *scene) {
	in := c.instance()
	in.run(c.samples.Write).succeeded()
	in.pause()
	made, err := in.tryKeep(in.snapshotRequest())
	in.resume()
	if err == nil {
		made.copy().prints(c.samples.Read, "kept")
		return
	}
	c.refused(err, "a snapshot of a paused instance", sdk.CodeConflict, sdk.CodeNotSupported)
	in.keep().copy().prints(c.samples.Read, "kept")
}

// "With Snapshot.Memory processes go on where they were, contexts and commands have the IDs
// that they had" (CreateRequest.Snapshot)
func copyKeepsCommands(c *scene) {
	in := c.instance().commands()
	// It counts in itself: what begins anew begins at 1.
	started := in.shell(counting)
	const far = 3
	c.eventually("a command counts", func(context.Context) error {
		if in.count() < far {
			return errNotYet
		}
		return nil
	})
	copied := in.keep().withMemory().copy().commands()
	var list []sdk.Command
	c.must(c.call("ListCommands", func(ctx context.Context) (err error) {
		list, err = c.ListCommands(ctx, copied.ID)
		return err
	}), "list the commands of the copy")
	found := false
	for _, one := range list {
		found = found || one.ID == started.ID && one.State == sdk.CommandRunning
	}
	c.check(found, "the command does not run in the copy: %s", shown(list))
	seen := copied.count()
	c.check(seen >= far, "the command began anew in the copy: it counts %d, and counted %d before", seen, far)
	c.eventually("the command goes on in the copy", func(context.Context) error {
		if copied.count() <= seen {
			return errNotYet
		}
		return nil
	})
	c.destroy(copied.ID)
	before := in.count()
	c.eventually("the command goes on in the original", func(context.Context) error {
		if in.count() <= before {
			return errNotYet
		}
		return nil
	})
}

// "the variables of a context are its own from then on" (CreateRequest.Snapshot)
func copyKeepsVariables(c *scene) {
	in := c.instance()
	made := in.newContext()
	made.run(c.samples.SetVariable).succeeded()
	snapshot := in.keep().withMemory()
	snapshot.copy().context(made).prints(c.samples.GetVariable, "1")
	made.prints(c.samples.GetVariable, "1")
}

// The same.
func copyIsOfItsMoment(c *scene) {
	in := c.instance()
	made := in.newContext()
	made.prints(c.samples.GetVariable, "absent")
	snapshot := in.keep().withMemory()
	made.run(c.samples.SetVariable).succeeded()
	snapshot.copy().context(made).prints(c.samples.GetVariable, "absent")
}

// The same.
func originalIsApart(c *scene) {
	in := c.instance()
	made := in.newContext()
	made.prints(c.samples.GetVariable, "absent")
	snapshot := in.keep().withMemory()
	one, other := snapshot.copy(), snapshot.copy()
	one.context(made).run(c.samples.SetVariable).succeeded()
	one.context(made).prints(c.samples.GetVariable, "1")
	other.context(made).prints(c.samples.GetVariable, "absent")
	made.prints(c.samples.GetVariable, "absent")
}

// "contexts … have the IDs that they had" (CreateRequest.Snapshot)
func copyListsContexts(c *scene) {
	in := c.instance()
	made := in.newContext()
	copied := in.keep().withMemory().copy()
	var list []sdk.CodeContext
	c.must(c.call("ListContexts", func(ctx context.Context) (err error) {
		list, err = c.ListContexts(ctx, copied.ID)
		return err
	}), "list the contexts of the copy")
	found := false
	for _, one := range list {
		found = found || one.ID == made.ID && one.Language == made.Language
	}
	c.check(found, "the copy lists %s, and not the context %s", fmt.Sprint(list), made.ID)
}
