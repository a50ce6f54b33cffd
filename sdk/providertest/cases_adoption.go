package providertest

import (
	"context"
	"maps"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

func adoptionCases() []Case {
	const group = "adoption"
	return needing([]Case{
		{Group: group, Name: "what another broker has is listed by its ID, and by no other", fresh: true, run: othersAreListed},
		{Group: group, Name: "what was adopted is listed as the new broker's", fresh: true, run: adoptedIsListed},
		{Group: group, Name: "files stay, and code runs", fresh: true, run: adoptedKeepsFiles},
		{Group: group, Name: "files are read and written", fresh: true, run: adoptedHasFiles, needs: []sdk.Capability{sdk.CapabilityFiles}},
		{Group: group, Name: "what runs goes on", fresh: true, run: adoptedRunsOn, needs: []sdk.Capability{sdk.CapabilityCommands}},
		{Group: group, Name: "a paused instance is adopted paused", fresh: true, run: adoptedIsPaused, needs: []sdk.Capability{sdk.CapabilityPause}},
		{Group: group, Name: "what was adopted can be destroyed", fresh: true, run: adoptedIsDestroyed},
		{Group: group, Name: "to adopt twice is a success", fresh: true, run: adoptedTwice},
		{Group: group, Name: "to adopt one's own is a success", fresh: true, run: adoptedOwn},
		{Group: group, Name: "what is not there is not found", fresh: true, run: adoptedUnknown},
		{Group: group, Name: "what yet another broker has is not found", fresh: true, run: adoptedOfAnother},
		{Group: group, Name: "the next process adopts it again", fresh: true, run: adoptedByTheNext},
		{Group: group, Name: "what was released is not listed", fresh: true, run: releasedIsNotListed},
		{Group: group, Name: "what was released can be adopted again", fresh: true, run: releasedIsAdopted},
		{Group: group, Name: "to release what is not known is a success", fresh: true, run: releasedUnknown},
		{Group: group, Name: "a broker that ends and comes back leaves alone what another one has", fresh: true, run: formerComesBack},
		{Group: group, Name: "the end that the former broker knew ends nothing", fresh: true, run: formerEndPasses, needs: []sdk.Capability{sdk.CapabilitySetTTL}},
		{Group: group, Name: "without the lease nothing is made or destroyed", fresh: true, run: leaseIsOver},
	}, sdk.CapabilityAdoption)
}

// legacy makes an instance with one broker, which change may change the request of, and starts
// another broker with the same account.
func legacy(c *scene, change ...func(*sdk.CreateRequest)) (made instance, heir *scene) {
	c.someLanguage()
	former := newBroker(c)
	req := former.createRequest(c.language)
	req.Labels[sdk.LabelBroker] = former.brokerID
	for _, f := range change {
		f(&req)
	}
	made = former.create(req)
	made.Labels = req.Labels
	return made, newBroker(c)
}

// newBroker starts the provider for another broker, nextProcess for one that had it.
func newBroker(c *scene) *scene { return nextProcess(c, newBrokerID()) }

func nextProcess(c *scene, brokerID string) *scene { return c.newSession(brokerID, brokerID) }

// tryAdopt has a broker adopt the instance.
func (in instance) tryAdopt(heir *scene, from string) error {
	return heir.call("Adopt", func(ctx context.Context) error { return heir.Adopt(ctx, in.ID, from) })
}

// adoptedBy has another broker adopt the instance, and returns it as one of that.
func (in instance) adoptedBy(heir *scene) instance {
	in.must(in.tryAdopt(heir, in.brokerID), "adopt the instance %s of another broker", in.ID)
	heir.destroyLater(in.ID)
	return instance{heir, in.Instance}
}

// disown has the broker leave the instance to another one.
func (in instance) disown() {
	in.must(in.call("Release", func(ctx context.Context) error { return in.Release(ctx, in.ID) }), "release the instance %s", in.ID)
}

// isListed checks whether List has the instance.
func (in instance) isListed(want bool, after string) {
	if _, listed := in.listed()[in.ID]; listed != want {
		in.fail("after %s it is %v that List has the instance %s; it must be %v", after, listed, in.ID, want)
	}
}

// isOf checks whether ListOf another broker has the instance, and that it has nothing else.
func (in instance) isOf(brokerID string, asked *scene, want bool) {
	var list []sdk.Instance
	err := asked.call("ListOf", func(ctx context.Context) (err error) {
		list, err = asked.ListOf(ctx, brokerID)
		return err
	})
	in.must(err, "list the instances of another broker")
	if !want {
		in.check(len(list) == 0, "ListOf a broker that has nothing has %s", shown(list))
		return
	}
	in.check(len(list) == 1 && list[0].ID == in.ID, "ListOf a broker that has the instance %s alone has %s", in.ID, shown(list))
	labelled(in, list[0], in.Labels, "ListOf returned")
}

// labelled checks the labels of an instance in a list. "A provider that has lost the labels of an
// instance, but knows that it is this broker's, lists it with this one" (LabelBroker)
func labelled(t judge, listed sdk.Instance, want map[string]string, what string) {
	if len(listed.Labels) == 1 {
		want = map[string]string{sdk.LabelBroker: want[sdk.LabelBroker]}
	}
	equal(t, listed.Labels, want, "the labels that %s", what)
}

// "ListOf is List for the instances that carry the ID of another broker" (Adopter.ListOf) To
// look changes nothing.
func othersAreListed(c *scene) {
	made, heir := legacy(c)
	own := heir.create(heir.createRequest(c.language))
	made.isOf(made.brokerID, heir, true)
	made.isOf(newBrokerID(), heir, false)
	instance{heir, made.Instance}.isListed(false, "ListOf")
	own.isListed(true, "ListOf another broker")
	made.isListed(true, "ListOf by another broker")
	made.prints(c.samples.Hello, "hello\n")
}

// "From then on List has it", with this broker's ID as LabelBroker. (Adopter.Adopt)
func adoptedIsListed(c *scene) {
	made, heir := legacy(c)
	before := made.listed()[made.ID]
	now := made.adoptedBy(heir)
	now.isListed(true, "its adoption")
	after := heir.listed()[made.ID]
	labels := maps.Clone(before.Labels)
	labels[sdk.LabelBroker] = heir.brokerID
	labelled(c, after, labels, "List returned after the adoption")
	if len(after.Labels) > 1 { // else it is lost as the labels are
		equal(c, after.Template, before.Template, "the template that List returned after the adoption")
	}
}

// "all methods serve it" and "What runs in the instance goes on" (Adopter.Adopt): nothing of it
// begins anew.
func adoptedKeepsFiles(c *scene) {
	made, heir := legacy(c)
	made.run(c.samples.Write).succeeded()
	now := made.adoptedBy(heir)
	now.prints(c.samples.Read, "kept")
	now.prints(c.samples.Hello, "hello\n")
}

// The same.
func adoptedHasFiles(c *scene) {
	made, heir := legacy(c)
	made.files().write("of-the-former", "former")
	now := made.adoptedBy(heir).files()
	now.holds("of-the-former", "former")
	now.write("of-the-former", "heir")
	now.holds("of-the-former", "heir")
}

// "What runs in the instance goes on." (Adopter.Adopt) It does so when the former broker has left
// it, too.
func adoptedRunsOn(c *scene) {
	made, heir := legacy(c)
	made.commands().shell(counting)
	now := made.adoptedBy(heir).commands()
	counts := func(after string) {
		before := now.count()
		now.eventually("a command goes on after "+after, func(context.Context) error {
			if now.count() <= before {
				return errNotYet
			}
			return nil
		})
	}
	counts("its instance was adopted")
	made.disown()
	counts("the former broker has released its instance")
}

// The same: what stands still does so until it is resumed.
func adoptedIsPaused(c *scene) {
	made, heir := legacy(c)
	made.run(c.samples.Write).succeeded()
	made.pause()
	now := made.adoptedBy(heir)
	now.isListed(true, "its adoption")
	c.refused(now.tried(now.request(c.samples.Hello)).err, "Execute in an instance that was adopted while it was paused", sdk.CodeConflict)
	now.resume()
	now.prints(c.samples.Read, "kept")
}

// "all methods serve it" (Adopter.Adopt)
func adoptedIsDestroyed(c *scene) {
	made, heir := legacy(c)
	now := made.adoptedBy(heir)
	heir.destroy(made.ID)
	now.isListed(false, "its destruction")
	made.isOf(made.brokerID, heir, false)
	c.refused(now.tried(now.request(c.code(c.samples.Hello))).err, "Execute in an instance that was adopted and destroyed", sdk.CodeNotFound)
}

// "It is idempotent." (Adopter.Adopt)
func adoptedTwice(c *scene) {
	made, heir := legacy(c)
	made.run(c.samples.Write).succeeded()
	now := made.adoptedBy(heir)
	now.prints(c.samples.Read, "kept")
	made.adoptedBy(heir)
	now.isListed(true, "a second adoption")
	now.prints(c.samples.Read, "kept")
}

// "or of this one" (Adopter.Adopt), whichever broker it is said to be of.
func adoptedOwn(c *scene) {
	made, _ := legacy(c)
	made.run(c.samples.Write).succeeded()
	for _, from := range []string{made.brokerID, newBrokerID()} {
		c.must(made.tryAdopt(made.scene, from), "adopt an instance of its own")
		made.isListed(true, "its adoption by the broker that has it")
		made.prints(c.samples.Read, "kept")
	}
}

// "Return CodeNotFound for one that is not there" (Adopter.Adopt)
func adoptedUnknown(c *scene) {
	made, heir := legacy(c)
	unknown := made.withID("unknown" + randomWord())
	c.refused(unknown.tryAdopt(heir, made.brokerID), "Adopt of an unknown instance", sdk.CodeNotFound)
	made.destroy(made.ID)
	c.refused(made.tryAdopt(heir, made.brokerID), "Adopt of an instance that was destroyed", sdk.CodeNotFound)
	equal(c, len(heir.listed()), 0, "the number of instances after that")
}

// "or that carries yet another ID" (Adopter.Adopt)
func adoptedOfAnother(c *scene) {
	made, heir := legacy(c)
	c.refused(made.tryAdopt(heir, newBrokerID()), "Adopt of an instance of another broker than was named", sdk.CodeNotFound)
	instance{heir, made.Instance}.isListed(false, "an adoption that was refused")
	made.isListed(true, "an adoption that was refused")
	made.prints(c.samples.Hello, "hello\n")
}

// "until this process ends: the next one is asked again" (Adopter.Adopt)
func adoptedByTheNext(c *scene) {
	made, first := legacy(c)
	made.run(c.samples.Write).succeeded()
	made.adoptedBy(first)
	first.stopInOrder()
	next := nextProcess(c, first.brokerID)
	now := made.adoptedBy(next)
	now.isListed(true, "its adoption by the next process")
	now.prints(c.samples.Read, "kept")
}

// "List has it no more" (Adopter.Release)
func releasedIsNotListed(c *scene) {
	made, heir := legacy(c)
	made.run(c.samples.Write).succeeded()
	now := made.adoptedBy(heir)
	for range 2 {
		made.disown()
		made.isListed(false, "its release")
	}
	now.isListed(true, "its release by the former broker")
	now.prints(c.samples.Read, "kept")
}

// "Adopt may make it this broker's again." (Adopter.Release)
func releasedIsAdopted(c *scene) {
	made, heir := legacy(c)
	made.run(c.samples.Write).succeeded()
	now := made.adoptedBy(heir)
	made.disown()
	back := now.adoptedBy(made.scene)
	now.disown()
	now.isListed(false, "its release")
	back.isListed(true, "its adoption by the broker that had made it")
	back.prints(c.samples.Read, "kept")
}

// "One that is not known is a success." (Adopter.Release)
func releasedUnknown(c *scene) {
	made, _ := legacy(c)
	made.withID("unknown" + randomWord()).disown()
	made.isListed(true, "the release of another one")
	made.prints(c.samples.Hello, "hello\n")
}

// "The provider does nothing to it any more by itself" (Adopter.Release): neither when it ends
// nor when it is started again.
func formerComesBack(c *scene) {
	made, heir := legacy(c)
	made.run(c.samples.Write).succeeded()
	made.stopInOrder()
	now := made.adoptedBy(heir)
	now.prints(c.samples.Read, "kept")
	back := nextProcess(c, made.brokerID)
	found := instance{back, made.Instance}
	found.disown()
	found.isListed(false, "its release")
	back.stopInOrder()
	now.isListed(true, "the former broker came and went")
	now.prints(c.samples.Read, "kept")
}

// The same: also not at a time that was its end once.
func formerEndPasses(c *scene) {
	short := c.suite.within(3 * time.Second)
	made, heir := legacy(c, func(req *sdk.CreateRequest) { req.TTL = short })
	now := made.adoptedBy(heir)
	c.near(now.setTTL(time.Hour), time.Hour, "the expiry that SetTTL returned after the adoption")
	made.disown()
	// Until the old end is over, by an instance that has it.
	heir.expiring(short).ends()
	now.isListed(true, "an end that the former broker knew")
	now.prints(c.samples.Hello, "hello\n")
}

// "A provider whose instances other brokers adopt asks it just before it has its service do
// something that cannot be undone." (LeaseOf) A look needs no lease.
func leaseIsOver(c *scene) {
	made, heir := legacy(c)
	destroy := func(left time.Duration) error {
		return made.call("Destroy", func(ctx context.Context) error { return made.Destroy(leased(ctx, made.brokerID, left), made.ID) })
	}
	c.refused(destroy(0), "Destroy after the lease has ended", sdk.CodeUnavailable, sdk.CodeConnectionFailed)
	_, err := made.tryCreate(made.createRequest(c.language)) // which brings no lease
	c.refused(err, "Create after the lease has ended", sdk.CodeUnavailable, sdk.CodeConnectionFailed, sdk.CodeCreateFailed)
	made.isListed(true, "the end of the lease")
	made.isOf(made.brokerID, heir, true)
	c.must(destroy(time.Hour), "destroy the instance after the lease was renewed")
	c.destroyed[made.ID] = true
	made.isListed(false, "its destruction")
}

// leased is the context of a call of a broker that shares its state with others.
func leased(ctx context.Context, brokerID string, left time.Duration) context.Context {
	return metadata.AppendToOutgoingContext(ctx, wire.MetadataLease, wire.LeaseText(brokerID, 1, left))
}
