-- Names the cluster of a request: its class, the models' group, and what it asks of a replica. The tables in front of the
-- three parts are generated from the rules that the in-process classifier uses.

-- What the request asks of a replica.

local function truthy(s, i)
  return not (find(s, "^null", i) or find(s, "^false", i) or find(s, '^""', i) or find(s, "^{%s*}", i)
    or find(s, "^%[%s*%]", i) or find(s, "^%-?0[%s,}%]]", i) or find(s, "^%-?0%.0*[%s,}%]]", i))
end

local TYPE, FORMAT = { type = true }, { format = true }

local function constrains(s, i)
  if byte(s, i) ~= 123 then return false end
  local found, empty = members(s, i, TYPE)
  if empty then return false end
  local kind = found.type and byte(s, found.type) == 34 and text_at(s, found.type)
  return not (kind and FREE_TYPES[kind])
end

local function asks_for_structure(s, places)
  for k = 1, #GRAMMARS do
    local place = places[GRAMMARS[k]]
    if place and truthy(s, place) then return true end
  end
  for k = 1, #FORMATS do
    local place = places[FORMATS[k]]
    if place and constrains(s, place) then return true end
  end
  for k = 1, #FORMAT_HOLDERS do
    local place = places[FORMAT_HOLDERS[k]]
    if place and byte(s, place) == 123 then
      local found = members(s, place, FORMAT)
      if found.format and constrains(s, found.format) then return true end
    end
  end
  local choice = places.tool_choice
  return choice ~= nil and (find(s, '^"required"', choice) ~= nil or constrains(s, choice))
end

local function demands(s, places)
  local sampling = false
  if places.min_p then
    local number = tonumber(match(s, "^[%d%.eE+%-]+", places.min_p))
    sampling = number ~= nil and number > 0
  end
  if not sampling and places.logit_bias then sampling = truthy(s, places.logit_bias) end
  local wanted = sampling and DEMAND_SAMPLING or ""
  if KEEPS_STRUCTURE_APART and asks_for_structure(s, places) then wanted = wanted .. DEMAND_STRUCTURE end
  return wanted
end

-- The filter.

local function refuse(handle, status, message, code)
  local kind = status == "404" and "not_found_error" or "invalid_request_error"
  handle:respond(
    { [":status"] = status, ["content-type"] = "application/json" },
    '{"error": {"message": "' .. message .. '", "type": "' .. kind .. '", "code": "' .. code .. '"}}'
  )
end

local function by_rule(path, model)
  for k = 1, #RULES do
    local rule = RULES[k]
    if (rule.path == nil or rule.path == path) and (rule.model == nil or rule.model == model) then
      return rule.class
    end
  end
end

local function named_class(headers, known)
  local name = HEADER and headers:get(HEADER)
  if not name then return nil end
  name = lower(match(name, "^%s*(.-)%s*$"))
  return known:get("class:" .. (ALIASES[name] or name))
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local path = match(headers:get(":path") or "", "^[^?]*")
  local kind = PATHS[path]
  if not kind or headers:get(":method") == "OPTIONS" then return end
  local known = handle:metadata()
  local cluster = named_class(headers, known)
  local group, wanted = known:get("model"), ""
  if kind == "opaque" then
    cluster = cluster or known:get("class:" .. (by_rule(path, nil) or DEFAULT))
  else
    local coding = headers:get("content-encoding")
    if coding and coding ~= "" and lower(coding) ~= "identity" then
      return refuse(handle, "415", "a compressed request body is not accepted", "unsupported_encoding")
    end
    local body = handle:body()
    known = handle:metadata() -- what was handed out before the wait may not be used behind it
    local s = body and body:getBytes(0, min(body:length(), LOOKED_AT)) or ""
    local start = find(s, "^%s*{")
    local places = start and members(s, find(s, "{", 1, true), WANTED) or {}
    local model = places.model and byte(s, places.model) == 34 and text_at(s, places.model) or nil
    if model == "" then model = nil end
    if model then
      group = known:get("model:" .. model) or known:get("other")
      if not group then
        return refuse(handle, "404", "no replica has the model that the request names", "model_not_found")
      end
    end
    if not cluster then
      local name = by_rule(path, model)
      if not name and kind == "prompt" then
        name = score(prompt_text(s, places))
        if name == "unsure" then name = nil end
      end
      cluster = known:get("class:" .. (name or DEFAULT))
    end
    wanted = demands(s, places)
  end
  handle:headers():replace(CLUSTER_HEADER, (group or "any") .. "-" .. (cluster or "") .. wanted)
  handle:clearRouteCache()
end
