package api

// AdminInstanceList holds live instances of all tenants, in the order of their IDs.
type AdminInstanceList struct {
	_    struct{}        `additionalProperties:"true"`
	Data []AdminInstance `json:"data" nullable:"false"`
	Next string          `json:"next,omitempty" doc:"If there are more: what to give as after for the next page."`
}

// AdminInstanceAnswer is one instance.
type AdminInstanceAnswer struct {
	_    struct{}      `additionalProperties:"true"`
	Data AdminInstance `json:"data"`
}

// AdminInstance is an instance as administrators see it.
type AdminInstance struct {
	Tenant string `json:"tenant" doc:"Whose it is; also one that is no tenant any more." example:"acme"`
	Instance
}
