package providertest

import (
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func labelCases() []Case {
	const group = "labels"
	return []Case{
		{Group: group, Name: "an instance carries its labels", run: carriesLabels},
		{Group: group, Name: "List returns labels and template", run: listsLabels},
		{Group: group, Name: "every instance has labels of its own", run: ownLabels},
		{Group: group, Name: "labels of all letters come back unchanged", run: strangeLabels},
		{Group: group, Name: "long labels come back unchanged", run: longLabels},
		{Group: group, Name: "labels beyond the usual ones come back", run: furtherLabels},
		{Group: group, Name: "another broker's instances are not listed", fresh: true, run: listsNoOthers},
		{Group: group, Name: "another broker's instances survive", fresh: true, run: leavesOthersAlone},
	}
}

// "Labels to keep with the instance and to return from List." (CreateRequest)
func carriesLabels(c *scene) {
	req := c.createRequest("")
	equal(c, c.createWith(req).Labels, req.Labels, "the labels that Create returned")
}

// The same.
func listsLabels(c *scene) {
	req := c.createRequest("")
	made := c.createWith(req)
	found := c.listed(c.session)[made.ID]
	equal(c, found.Labels, req.Labels, "the labels that List returned")
	equal(c, found.Template, req.Template, "the template that List returned")
}

// The same.
func ownLabels(c *scene) {
	labels := map[string]map[string]string{}
	for range 3 {
		req := c.createRequest("")
		labels[c.createWith(req).ID] = req.Labels
	}
	list := c.listed(c.session)
	for id, want := range labels {
		equal(c, list[id].Labels, want, "the labels of %s among others", id)
	}
}

// "the tenant's own name for a piece of work": sessions are what agents call
// them.
func strangeLabels(c *scene) {
	for _, value := range []string{"Grüße, 世界 🎈", `quotes " ' and \ and $HOME and {}`, "a b,c=d;e:f/g", " leading and trailing "} {
		c.labelSurvives(value)
	}
}

// The same.
func longLabels(c *scene) { c.labelSurvives(strings.Repeat("0123456789abcdef", 16)) }

func (c *scene) labelSurvives(value string) {
	req := c.createRequest("")
	req.Labels[sdk.LabelSession] = value
	made := c.createWith(req)
	equal(c, c.listed(c.session)[made.ID].Labels, req.Labels, "the labels that List returned")
	c.destroy(made.ID)
}

// "at least LabelTenant, LabelSession and LabelInstance" (CreateRequest.Labels)
func furtherLabels(c *scene) {
	req := c.createRequest("")
	req.Labels["generation"] = "7"
	made := c.createWith(req)
	equal(c, c.listed(c.session)[made.ID].Labels, req.Labels, "the labels that List returned")
}

// "Mark every instance with it, so that two brokers on one account never touch
// each other's." (ConfigureRequest.BrokerID)
func listsNoOthers(c *scene) {
	one := c.newSession(newBrokerID(), newBrokerID())
	two := c.newSession(newBrokerID(), newBrokerID())
	made := c.createOn(one, one.createRequest(""))
	_, ok := c.listed(two)[made.ID]
	c.check(!ok, "List of another broker has the instance %s", made.ID)
	_, ok = c.listed(one)[made.ID]
	c.check(ok, "List lacks the instance %s", made.ID)
}

// The same: neither the start nor the end of one touches the other's.
func leavesOthersAlone(c *scene) {
	c.someLanguage()
	one := c.newSession(newBrokerID(), newBrokerID())
	made := c.createOn(one, one.createRequest(c.language))
	two := c.newSession(newBrokerID(), newBrokerID())
	c.createOn(two, two.createRequest(c.language))
	two.stop(c.ctx)
	e := c.beginOn(c.ctx, one, c.request(made.ID, c.code(c.samples.Hello)))
	got := c.await(e, callTimeout, "it was asked to run")
	c.must(got.err, "execute after another broker came and went")
	c.succeeded(got)
}
