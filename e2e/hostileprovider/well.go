package main

import (
	"cmp"
	"crypto/rand"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// well answers a call as it should be. The code of an execution is its output.
func (c *call) well() {
	p := c.plugin
	switch c.method {
	case "Describe":
		c.reply(description())
	case "Configure":
		c.reply(&providerv1.ConfigureResponse{})
	case "Health":
		c.reply(&providerv1.HealthResponse{Healthy: true})
	case "Create":
		req := read(c, &providerv1.CreateRequest{})
		c.reply(&providerv1.CreateResponse{Instance: p.create(strings.ToLower(rand.Text()), req)})
	case "Execute":
		req := read(c, &providerv1.ExecuteRequest{})
		c.send(stdout([]byte(req.GetInstanceId() + " " + req.GetCode())))
		c.send(result(&providerv1.ExecuteResult{Status: "succeeded"}))
		c.end(codes.OK, "", nil)
	case "Destroy":
		p.destroy(read(c, &providerv1.DestroyRequest{}).GetInstanceId())
		c.reply(&providerv1.DestroyResponse{})
	case "List":
		c.reply(&providerv1.ListResponse{Instances: p.list()})
	case "Close":
		c.reply(&providerv1.CloseResponse{})
	default:
		c.end(codes.Unimplemented, "no such call", nil)
	}
}

func description() *providerv1.DescribeResponse {
	return &providerv1.DescribeResponse{
		Name: "hostile", Version: "0.0.1", Summary: "Means harm when it is told to.", Languages: []string{"mock"}, Ephemeral: true,
		Templates: []*providerv1.Template{{Name: "mock", Languages: []string{"mock"}}},
		Schema:    []*providerv1.Field{{Name: "secret", Type: "string", Secret: true}},
		// None of these is there.
		Capabilities: []string{"commands", "contexts", "files", "file_search", "metrics", "pause", "packages", "ports"},
	}
}

func stdout(data []byte) *providerv1.ExecuteResponse {
	return &providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Stdout{Stdout: data}}
}

func result(r *providerv1.ExecuteResult) *providerv1.ExecuteResponse {
	return &providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Result{Result: r}}
}

func (p *plugin) create(id string, req *providerv1.CreateRequest) *providerv1.Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instances[id], p.newest = req.GetLabels(), id
	return &providerv1.Instance{Id: id, Template: req.GetTemplate(), Labels: req.GetLabels(), CreatedAt: timestamppb.Now()}
}

func (p *plugin) destroy(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.instances, id)
}

func (p *plugin) list() []*providerv1.Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*providerv1.Instance
	for id, labels := range p.instances {
		list = append(list, &providerv1.Instance{Id: id, Labels: labels})
	}
	return list
}

// anybody is the ID of an instance that there is already: the one made last, for another
// may just be on its way out.
func (p *plugin) anybody() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.newest, "nobody")
}

// prefix is an ID of which each is the beginning of the next.
func (p *plugin) prefix() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prefixed++
	return strings.Repeat("1", p.prefixed)
}
