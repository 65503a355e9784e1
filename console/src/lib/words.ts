/** What words of the console mean, in the words of docs/reference/words.md. */
export const meanings = {
  mode: 'What clients are sent. full: the shares that Isobar computed. bounded: these, within max_shift of the nearest locality. observe: the nearest locality; Isobar only computes the rest. auto: from observe to bounded to full by the score.',
  policy: 'How the target is computed. latency: the least mean latency under the ceilings. The others follow a rule: by zone, by region, the nearest, or weights of the file.',
  gap: 'How much mean latency the best possible shares could save at most, for the demand and capacity of now. The solver proves this bound; a small number means that no better shares exist.',
  coverage: 'The fraction of the known demand whose clients report their load. Isobar computes the rest from the last reports; without reports it does not know demand.',
  drop: 'The part of the requests that clients fail themselves because Isobar told them to, so that the rest is served (max_shed). Requests that endpoints fail or that time out are not in it: what needs attention names these.',
  hold: 'While weights are held they do not follow demand, because the text names an input that is missing. Changes of health take effect. The hold ends by itself when the input is back.',
  now: 'The share that clients are told now.',
  target: 'The share that the solver wants. The share of now moves towards it with each decision, by a limited step, so that a mistake stays small.',
  observed: 'Where requests went, by the load reports of clients.',
  price: 'What one more request per second here costs the requests of all clients together, as latency. A full locality has a high price.',
  cost: 'Network latency plus price. Requests go to the localities of the lowest cost.',
  ceiling: 'The highest utilization that Isobar plans for. The rest is for what nobody foresaw.',
} as const;
